// ---- Markdown, the part that models write -------------------------------------------------------
// Each character is looked at a bounded number of times.

const MOST_DEPTH = 6;
const MOST_OPEN = 16;  // emphases within each other
const LINK = /\[((?:[^\[\]\n\\]|\\.){1,300})\]\((https?:\/\/[^\s()]{1,2000})\)/y;
const TICKS = /`+/y;
const ADDRESS = /https?:\/\/[^\s<>"')\]]{1,2000}/y;
const ENTITY = /&(?:#(\d{1,7})|#x([\da-f]{1,6})|(amp|lt|gt|quot|apos|nbsp|copy|hellip|mdash|ndash|times|deg));/iy;
const ENTITIES = {amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©',
                  hellip: '…', mdash: '—', ndash: '–', times: '×', deg: '°'};
const FORMULA_ENDS = {'$$': '$$', '\\(': '\\)', '\\[': '\\]'};
const FORMULA_BLOCK = /^\s*(?:\$\$|\\\[)\s*$/;
const TAGS = {'*': 'em', '_': 'em', '**': 'strong', '__': 'strong', '~~': 'del'};

function link(address, text) {
  return node('a', {href: address, target: '_blank', rel: 'noopener noreferrer nofollow'}, text);
}

// One by one: a call takes only so many arguments.
function fill(made, nodes) {
  for (const one of nodes) made.append(one);
  return made;
}

function matched(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

// Where runs of backticks of each length are.
function backticks(text) {
  const runs = new Map();
  for (const found of text.matchAll(/`+/g)) {
    const length = found[0].length;
    if (!runs.has(length)) runs.set(length, {at: [], next: 0});
    runs.get(length).at.push(found.index);
  }
  return runs;
}

class Inline {
  constructor(text) {
    this.text = text;
    this.runs = backticks(text);
    this.lastEnds = new Map();  // of formulas: where each end is for the last time
    this.open = [];           // [{mark, nodes}] that wait for their ends
    this.counts = new Map();  // of marks in `open`
    this.nodes = [];
    this.plain = '';
  }
  top() { return this.open.length > 0 ? this.open.at(-1).nodes : this.nodes; }
  flush() {
    if (this.plain) this.top().push(this.plain);
    this.plain = '';
  }
  add(made) {
    this.flush();
    this.top().push(made);
  }
  begin(mark) {
    this.flush();
    this.open.push({mark, nodes: []});
    this.counts.set(mark, (this.counts.get(mark) || 0) + 1);
  }
  // What was opened above place `from` is text after all.
  collapse(from) {
    const into = from > 0 ? this.open[from - 1].nodes : this.nodes;
    for (const one of this.open.splice(from)) {
      this.counts.set(one.mark, this.counts.get(one.mark) - 1);
      into.push(one.mark);
      for (const made of one.nodes) into.push(made);
    }
  }
  end(mark) {
    this.flush();
    let place = this.open.length - 1;
    while (this.open[place].mark !== mark) --place;
    this.collapse(place + 1);
    const {nodes} = this.open.pop();
    this.counts.set(mark, this.counts.get(mark) - 1);
    this.top().push(fill(node(TAGS[mark]), nodes));
  }
  code(at) {
    const run = matched(TICKS, this.text, at)[0].length;
    const places = this.runs.get(run);  // {at: [...], next}
    while (places.next < places.at.length && places.at[places.next] <= at) ++places.next;
    const end = places.at[places.next];
    if (end === undefined) {
      this.plain += '`'.repeat(run);
      return at + run;
    }
    const inner = this.text.slice(at + run, end).replace(/\n/g, ' ');
    const padded = inner.startsWith(' ') && inner.endsWith(' ') && inner.trim() !== '';
    this.add(node('code', {}, padded ? inner.slice(1, -1) : inner));
    return end + run;
  }
  emphasis(at) {
    const letter = this.text[at];
    let size = 1;
    while (size < 3 && this.text[at + size] === letter) ++size;
    if (size === 3 && letter === '*') return this.both(at);
    size = Math.min(size, 2);
    const mark = letter.repeat(size);
    const before = at > 0 ? this.text[at - 1] : ' ', after = this.text[at + size] ?? ' ';
    const word = /[\p{L}\p{N}]/u;
    const inWord = letter === '_' && word.test(before) && word.test(after);
    const known = mark in TAGS && !inWord;
    if (known && /\S/.test(before) && this.counts.get(mark) > 0) this.end(mark);
    else if (known && /\S/.test(after) && this.open.length < MOST_OPEN) this.begin(mark);
    else this.plain += mark;
    return at + size;
  }
  // ***: strong and emphasis, the one that was opened last first.
  both(at) {
    const opened = (mark) => this.counts.get(mark) > 0;
    if (at > 0 && /\S/.test(this.text[at - 1]) && opened('*') && opened('**')) {
      const last = this.open.findLast((one) => one.mark === '*' || one.mark === '**').mark;
      this.end(last);
      this.end(last === '*' ? '**' : '*');
    } else if (/\S/.test(this.text[at + 3] ?? ' ') && this.open.length + 1 < MOST_OPEN) {
      this.begin('**');
      this.begin('*');
    } else {
      this.plain += '***';
    }
    return at + 3;
  }
  // A formula on this line: $...$ without a space inside or a digit behind, $$...$$, \(...\), \[...\].
  formula(at) {
    const {text} = this;
    const two = text.slice(at, at + 2);
    const end = FORMULA_ENDS[two] ?? (two[0] === '$' ? '$' : null);
    if (end === null) return 0;
    const from = at + (two in FORMULA_ENDS ? 2 : 1);
    if (!this.lastEnds.has(end)) this.lastEnds.set(end, text.lastIndexOf(end));
    const place = this.lastEnds.get(end) < from ? -1 : text.slice(from, from + MOST_FORMULA).indexOf(end);
    if (place <= 0) return 0;
    const inner = text.slice(from, from + place), behind = from + place + end.length;
    if (end === '$' && (/^\s|[\s\\]$|`/.test(inner) || /\d/.test(text[behind] ?? ''))) return 0;
    const made = formula(inner, end === '$$' || end === '\\]');
    if (made) this.add(made);
    else this.plain += text.slice(at, behind);  // as a whole: what stands within is not tried again
    return behind;
  }
  special(at) {
    const {text} = this;
    const letter = text[at];
    if (letter === '$' || letter === '\\') {
      const behind = this.formula(at);
      if (behind > 0) return behind;
    }
    if (letter === '\\' && /[!-\/:-@[-`{-~]/.test(text[at + 1] ?? '')) {
      this.plain += text[at + 1];
      return at + 2;
    }
    if (letter === '`') return this.code(at);
    if (letter === '*' || letter === '_' || letter === '~') return this.emphasis(at);
    if (letter === '[') {
      const found = matched(LINK, text, at);
      if (found) this.add(link(found[2], found[1].replace(/\\(.)/g, '$1')));
      if (found) return at + found[0].length;
    }
    if (letter === 'h' && !/\w/.test(text[at - 1] ?? ' ')) {
      const found = matched(ADDRESS, text, at);
      const address = found && found[0].replace(/(?<![.,;:!?*_~])[.,;:!?*_~]+$/, '');
      if (found) this.add(link(address, address));
      if (found) return at + address.length;
    }
    const entity = letter === '&' ? matched(ENTITY, text, at) : null;
    if (!entity) {
      this.plain += letter;
      return at + 1;
    }
    const code = entity[1] ? Number(entity[1]) : parseInt(entity[2] || '0', 16);
    this.plain += entity[3] ? ENTITIES[entity[3].toLowerCase()]
      : code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : entity[0];
    return at + entity[0].length;
  }
  read() {
    const next = /[\\`*_~[h&$]/g;
    let at = 0;
    while (at < this.text.length) {
      next.lastIndex = at;
      const found = next.exec(this.text);
      const place = found ? found.index : this.text.length;
      this.plain += this.text.slice(at, place);
      at = found ? this.special(place) : place;
    }
    this.flush();
    this.collapse(0);
    return this.nodes;
  }
}

function inline(text) { return new Inline(text).read(); }

// ---- Code in colours: comments, texts, numbers, words of most languages ---------------------------

const CODE = /(\/\/.*|\/\*[\s\S]*?(?:\*\/|$)|(?<=^|\s)#(?!\w*[;{]).*|<!--[\s\S]*?(?:-->|$))|((?<!\\)(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))|\b(\d[\w.]*)\b|\b(abstract|and|as|async|await|bool|break|case|catch|class|const|continue|def|default|del|do|double|elif|else|enum|except|export|extends|false|False|finally|float|fn|for|from|func|function|if|impl|import|in|int|interface|is|lambda|let|long|match|mut|namespace|new|nil|None|not|null|or|package|pass|private|public|pub|raise|return|self|static|string|struct|super|switch|template|this|throw|true|True|try|type|typename|use|using|var|void|while|with|yield)\b/gm;
const CODE_CLASSES = ['comment', 'text', 'number', 'word'];
const MOST_COLOURED = 20000;

function coloured(text) {
  if (text.length > MOST_COLOURED) return [text];
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(CODE)) {
    if (found.index > end) nodes.push(text.slice(end, found.index));
    const kind = found.slice(1).findIndex((group) => group !== undefined);
    nodes.push(node('span', {class: 'c-' + CODE_CLASSES[kind]}, found[0]));
    end = found.index + found[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

function codeBlock(lines, language) {
  const text = lines.join('\n');
  const copy = node('button', {type: 'button', onclick: () => copyText(text, copy)}, 'Copy');
  return node('pre', {tabindex: '0', 'aria-label': language ? 'Code, ' + language : 'Code'},
              fill(node('code'), language ? coloured(text) : [text]), copy);
}

// Cells are cut at pipes without a backslash, in code too.
function cells(line) {
  return line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '').split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll('\\|', '|'));
}

function table(lines) {
  const sides = cells(lines[1]).map((mark) => /^:?-+:$/.test(mark) ? mark[0] === ':' ? 'center' : 'right' : '');
  const row = (line, name) =>
    fill(node('tr'), cells(line).map((cell, i) => fill(node(name, sides[i] ? {class: sides[i]} : {}), inline(cell))));
  return node('div', {class: 'table', tabindex: '0'},
              node('table', {}, node('thead', {}, row(lines[0], 'th')),
                   fill(node('tbody'), lines.slice(2).map((line) => row(line, 'td')))));
}

// Each kind of block says whether a line begins it, and takes its lines.
const BULLET = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/s;  // s: or a line separator at the end tries each space

function listBlock(lines, at, depth) {
  const [, indent, mark] = lines[at].match(BULLET);
  const ordered = /\d/.test(mark);
  const list = node(ordered ? 'ol' : 'ul', ordered ? {start: String(parseInt(mark, 10))} : {});
  while (at < lines.length) {
    const found = lines[at].match(BULLET);
    if (!found || found[1].length < indent.length || /\d/.test(found[2]) !== ordered) break;
    const inner = [found[3]];
    for (++at; at < lines.length; ++at) {
      const next = lines[at].match(BULLET);
      if (next && next[1].length <= indent.length) break;
      if (!next && !/^\s+\S/.test(lines[at])) break;
      inner.push(lines[at].slice(Math.min(indent.length + 2, lines[at].search(/\S/))));
    }
    const task = inner[0].match(/^\[([ xX])\]\s+(.*)$/s);
    if (task) inner[0] = task[2];
    const item = node('li', task ? {class: 'task'} : {});
    if (task) item.append(task[1] === ' ' ? '☐ ' : '☑ ');
    if (inner.length === 1) fill(item, inline(inner[0]));
    else fill(item, blocks(inner, depth + 1));
    list.append(item);
    while (at + 1 < lines.length && lines[at] === '' && BULLET.test(lines[at + 1])) ++at;
  }
  return [list, at];
}

function fenceBlock(lines, at) {
  const [, fence, language] = lines[at].match(/^\s*(`{3,}|~{3,})\s*([\w+#.-]*)/);
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(fence)) ++end;
  return [codeBlock(lines.slice(at + 1, end), language), end + 1];
}

// A formula over several lines, between lines of $$ or \[ and \].
function formulaBlock(lines, at) {
  const close = lines[at].trim() === '$$' ? '$$' : '\\]';
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== close) ++end;
  const text = lines.slice(at + 1, end).join('\n');
  return [formula(text, true) ?? node('p', {}, lines.slice(at, end + 1).join('\n')), end + 1];
}

function quoteBlock(lines, at, depth) {
  let end = at;
  while (end < lines.length && /^\s*>/.test(lines[end])) ++end;
  const inner = lines.slice(at, end).map((line) => line.replace(/^\s*> ?/, ''));
  return [fill(node('blockquote'), blocks(inner, depth + 1)), end];
}

function tableBlock(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes('|')) ++end;
  return [table(lines.slice(at, end)), end];
}

const isTable = (lines, at) =>
  lines[at].includes('|') && at + 1 < lines.length && /^[\s|:]*-[\s|:-]*$/.test(lines[at + 1]) &&
  lines[at + 1].includes('|');
const BLOCK_START = /^\s*(`{3,}|~{3,}|>|#{1,6}\s|\$\$\s*$|\\\[\s*$|(-{3,}|\*{3,}|_{3,})\s*$)/;

function blocks(lines, depth = 0) {
  const made = [];
  let at = 0;
  const take = ([block, next]) => { made.push(block); at = next; };
  while (at < lines.length) {
    const line = lines[at];
    if (depth >= MOST_DEPTH) { made.push(node('p', {}, lines.slice(at).join('\n'))); break; }
    const heading = line.match(/^\s*(#{1,6})\s+(.*)$/s);
    if (line.trim() === '') ++at;
    else if (/^\s*(`{3,}|~{3,})/.test(line)) take(fenceBlock(lines, at));
    else if (FORMULA_BLOCK.test(line)) take(formulaBlock(lines, at));
    else if (heading) take([fill(node('h' + Math.min(heading[1].length + 1, 6)), inline(heading[2])), at + 1]);
    else if (/^\s*(-{3,}|\*{3,}|_{3,})\s*$/.test(line)) take([node('hr'), at + 1]);
    else if (/^\s*>/.test(line)) take(quoteBlock(lines, at, depth));
    else if (isTable(lines, at)) take(tableBlock(lines, at));
    else if (BULLET.test(line)) take(listBlock(lines, at, depth));
    else {
      let end = at + 1;
      while (end < lines.length && lines[end].trim() !== '' && !BLOCK_START.test(lines[end]) &&
             !BULLET.test(lines[end]) && !isTable(lines, end)) ++end;
      const paragraph = node('p');
      lines.slice(at, end).forEach((part, i) => {
        if (i > 0) paragraph.append(node('br'));
        fill(paragraph, inline(part));
      });
      take([paragraph, end]);
    }
  }
  return made;
}

function markdown(text) { return blocks(text.replace(/\r\n?/g, '\n').split('\n')); }

