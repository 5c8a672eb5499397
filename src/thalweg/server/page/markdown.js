// Markdown as models write it, into DOM nodes: nothing of an answer is ever parsed as HTML.

const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|\*([^*\s](?:[^*]*[^*\s])?)\*|\[([^\]]+)\]\((https?:[^)\s]+)\)/g;

export function render(text) {
  const out = document.createDocumentFragment();
  const lines = text.split("\n");
  for (let i = 0; i < lines.length; ) {
    i = block(lines, i, out);
  }
  return out;
}

function block(lines, i, out) {
  const line = lines[i];
  const fence = line.match(/^\s*(```+|~~~+)\s*(\S*)/);
  if (fence) return codeBlock(lines, i, fence[1], out);
  const heading = line.match(/^(#{1,6})\s+(.*)/);
  if (heading) {
    out.append(filled(`h${heading[1].length}`, heading[2]));
    return i + 1;
  }
  if (/^\s*([-*+]|\d+[.)])\s+/.test(line)) return list(lines, i, out);
  if (/^\s*\|.*\|\s*$/.test(line) && /^\s*\|[\s:|-]+\|\s*$/.test(lines[i + 1] ?? "")) return table(lines, i, out);
  if (/^\s*([-*_])\s*(\1\s*){2,}$/.test(line)) {
    out.append(document.createElement("hr"));
    return i + 1;
  }
  if (!line.trim()) return i + 1;
  let end = i + 1;
  while (end < lines.length && lines[end].trim() && !/^\s*(```|~~~|#{1,6}\s|[-*+]\s|\d+[.)]\s|\|)/.test(lines[end])) end++;
  out.append(filled("p", lines.slice(i, end).join("\n")));
  return end;
}

function codeBlock(lines, i, fence, out) {
  let end = i + 1;
  while (end < lines.length && !lines[end].trim().startsWith(fence)) end++;
  const pre = document.createElement("pre");
  const code = document.createElement("code");
  code.textContent = lines.slice(i + 1, end).join("\n");
  pre.append(code);
  out.append(pre);
  return end + 1;
}

function list(lines, i, out) {
  const item = /^\s*([-*+]|\d+[.)])\s+(.*)/;
  const node = document.createElement(/^\s*\d/.test(lines[i]) ? "ol" : "ul");
  const first = lines[i].match(/^\s*(\d+)/);
  if (first) node.start = Number(first[1]);
  let match;
  while (i < lines.length && (match = lines[i].match(item))) {
    let text = match[2];
    while (++i < lines.length && /^\s+\S/.test(lines[i]) && !item.test(lines[i])) text += "\n" + lines[i].trim();
    node.append(filled("li", text));
  }
  out.append(node);
  return i;
}

function table(lines, i, out) {
  const node = document.createElement("table");
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const row = (line, tag) => {
    const tr = document.createElement("tr");
    for (const cell of cells(line)) tr.append(filled(tag, cell));
    node.append(tr);
  };
  row(lines[i], "th");
  for (i += 2; i < lines.length && /^\s*\|.*\|\s*$/.test(lines[i]); i++) row(lines[i], "td");
  out.append(node);
  return i;
}

function filled(tag, text) {
  const node = document.createElement(tag);
  inline(text, node);
  return node;
}

function inline(text, node) {
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    node.append(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[2] !== undefined) node.append(leaf("code", match[2]));
    else if (match[3] !== undefined) node.append(filled("strong", match[3]));
    else if (match[4] !== undefined) node.append(filled("em", match[4]));
    else {
      const link = filled("a", match[5]);
      link.href = match[6];
      link.rel = "noreferrer";
      link.target = "_blank";
      node.append(link);
    }
  }
  node.append(text.slice(at));
}

function leaf(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}
