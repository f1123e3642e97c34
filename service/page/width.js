/** Width of an element. */

import { useEffect, useRef, useState } from "preact/hooks";

/**
 * @returns {[import("preact").RefObject<HTMLElement>, number]} reference for an element, and its
 *   width in pixels; 0 until it is known
 */
export function useWidth() {
  const element = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}
