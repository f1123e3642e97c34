/** Polling while a view is visible. */

import { useEffect } from "preact/hooks";

/**
 * Runs an action at once and then repeatedly, each after the one before, while the view is open
 * and its tab is visible.
 * @param {() => Promise<void>} action
 * @param {number} seconds pause between actions
 */
export function usePolling(action, seconds) {
  useEffect(() => {
    let timer = 0;
    let open = true;
    let running = false;
    const turn = async () => {
      clearTimeout(timer);
      if (document.hidden || running) return;
      running = true;
      try {
        await action();
      } finally {
        running = false;
        if (open) timer = setTimeout(turn, seconds * 1000);
      }
    };
    turn();
    document.addEventListener("visibilitychange", turn);
    return () => {
      open = false;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", turn);
    };
  }, []);
}
