/** Papa Parse, which is published as a script that leaves a global, as a module. */
export default globalThis.Papa;
