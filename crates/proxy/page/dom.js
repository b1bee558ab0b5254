// Elements: found, made, and made equal to others with as little as possible touched.

export const $ = (id) => document.getElementById(id);

export const make = (name, css, text) => {
  const element = document.createElement(name);
  if (css) element.className = css;
  if (text !== undefined) element.textContent = text;
  return element;
};

// What is written again is laid out and painted again, also where nothing has changed.
export function say(element, text) {
  if (element.said !== text) element.textContent = element.said = text;
}

// Makes the children of an element equal to fresh ones, and touches only those that differ.
export function renew(root, ...fresh) {
  fresh.forEach((node, at) => {
    const old = root.childNodes[at];
    if (!old) root.append(node);
    else if (old.isEqualNode(node)) return;
    else if (old.nodeType === Node.ELEMENT_NODE && old.cloneNode(false).isEqualNode(node.cloneNode(false))) renew(old, ...node.childNodes);
    else old.replaceWith(node);
  });
  while (root.childNodes.length > fresh.length) root.lastChild.remove();
}
