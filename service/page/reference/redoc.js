/** The interface to read: Redoc, of the document next to this page. */

// Its one image is a logo from its maker's host, which the policy would block with an error on the
// console. No element but an image loads anything.
const { createElement } = document;
document.createElement = (name, ...options) =>
  createElement.call(document, name === 'img' ? 'span' : name, ...options);

document.body.style.margin = 0;
Redoc.init('openapi.json', { hideLoading: true }, document.getElementById('reference'));
