'use strict';
// The page to chat with. No framework, and no text of a model ever becomes markup: all nodes are
// made one by one.

// ---- What the browser keeps ---------------------------------------------------------------------

const kept = {
  read(name, fallback) {
    try {
      const text = localStorage.getItem('leq.' + name);
      return text === null ? fallback : JSON.parse(text);
    } catch {
      return fallback;
    }
  },
  write(name, value) {
    try {
      localStorage.setItem('leq.' + name, JSON.stringify(value));
    } catch {
      say('This browser keeps no more conversations: delete some.');
    }
  },
};

const state = {
  conversations: kept.read('conversations', []),
  current: null,
  settings: kept.read('settings', {}),
  running: null,  // the AbortController of the reply in work
};

// ---- Small helpers ------------------------------------------------------------------------------

const $ = (id) => document.getElementById(id);

function node(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (key === 'class') made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function say(text) { $('status').textContent = text; }

function newId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join('');
}

// ---- Markdown, the part that models write -------------------------------------------------------

const INLINE =
  /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|(?<![\w*])\*(?=\S)([^*\n]*?[^\s*])\*(?!\w)|\[([^\]\n]{1,300})\]\((https?:\/\/[^\s()]{1,2000})\)|(https?:\/\/[^\s<>"')\]]{1,2000})/g;
const MOST_DEPTH = 6;

function link(address, text) {
  return node('a', {href: address, target: '_blank', rel: 'noopener noreferrer nofollow'}, text);
}

function inline(text, depth = 0) {
  const nodes = [];
  let end = 0;
  for (const found of depth < MOST_DEPTH ? text.matchAll(INLINE) : []) {
    if (found.index > end) nodes.push(text.slice(end, found.index));
    end = found.index + found[0].length;
    const [, , code, bold, italic, linkText, linkTo, address] = found;
    if (code !== undefined) nodes.push(node('code', {}, code.trim() || code));
    else if (bold !== undefined) nodes.push(node('strong', {}, ...inline(bold, depth + 1)));
    else if (italic !== undefined) nodes.push(node('em', {}, ...inline(italic, depth + 1)));
    else if (linkTo !== undefined) nodes.push(link(linkTo, linkText));
    else nodes.push(link(address, address));
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

function codeBlock(lines, language) {
  const text = lines.join('\n');
  const copy = node('button', {type: 'button', onclick: () => copyText(text, copy)}, 'Copy');
  return node('pre', {tabindex: '0', 'aria-label': language ? 'Code, ' + language : 'Code'},
              node('code', {}, text), copy);
}

const cells = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());

function table(lines) {
  const row = (line, name) =>
    node('tr', {}, ...cells(line).map((cell) => node(name, {}, ...inline(cell))));
  return node('div', {class: 'table', tabindex: '0'},
              node('table', {}, node('thead', {}, row(lines[0], 'th')),
                   node('tbody', {}, ...lines.slice(2).map((line) => row(line, 'td')))));
}

// Each kind of block says whether a line begins it, and takes its lines.
const BULLET = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

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
    const item = node('li');
    if (inner.length === 1) item.append(...inline(inner[0]));
    else item.append(...blocks(inner, depth + 1));
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

function quoteBlock(lines, at, depth) {
  let end = at;
  while (end < lines.length && /^\s*>/.test(lines[end])) ++end;
  const inner = lines.slice(at, end).map((line) => line.replace(/^\s*> ?/, ''));
  return [node('blockquote', {}, ...blocks(inner, depth + 1)), end];
}

function tableBlock(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes('|')) ++end;
  return [table(lines.slice(at, end)), end];
}

const isTable = (lines, at) =>
  lines[at].includes('|') && at + 1 < lines.length && /^[\s|:-]*-[\s|:-]*$/.test(lines[at + 1]) &&
  lines[at + 1].includes('|');
const BLOCK_START = /^\s*(`{3,}|~{3,}|>|#{1,6}\s|(-{3,}|\*{3,}|_{3,})\s*$)/;

function blocks(lines, depth = 0) {
  const made = [];
  let at = 0;
  const take = ([block, next]) => { made.push(block); at = next; };
  while (at < lines.length) {
    const line = lines[at];
    if (depth >= MOST_DEPTH) { made.push(node('p', {}, lines.slice(at).join('\n'))); break; }
    const heading = line.match(/^\s*(#{1,6})\s+(.*)$/);
    if (line.trim() === '') ++at;
    else if (/^\s*(`{3,}|~{3,})/.test(line)) take(fenceBlock(lines, at));
    else if (heading) take([node('h' + Math.min(heading[1].length + 1, 6), {}, ...inline(heading[2])), at + 1]);
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
        paragraph.append(...inline(part));
      });
      take([paragraph, end]);
    }
  }
  return made;
}

function markdown(text) { return blocks(text.replace(/\r\n?/g, '\n').split('\n')); }

// ---- Conversations ------------------------------------------------------------------------------

function save() { kept.write('conversations', state.conversations); }

function titleOf(conversation) {
  const first = conversation.messages.find((message) => message.role === 'user');
  return first ? first.content.slice(0, 60) : 'New conversation';
}

function startConversation() {
  stop();
  const empty = state.conversations.find((one) => one.messages.length === 0);
  state.current = empty || {id: newId(), messages: []};
  if (!empty) state.conversations.unshift(state.current);
  closeMenu();
  showAll();
  $('input').focus();
}

function openConversation(conversation) {
  stop();
  state.current = conversation;
  closeMenu();
  showAll();
}

function removeConversation(conversation) {
  if (!confirm('Delete “' + titleOf(conversation) + '”?')) return;
  state.conversations = state.conversations.filter((one) => one !== conversation);
  save();
  if (state.current === conversation) startConversation();
  else showList();
}

function showList() {
  $('conversations').replaceChildren(...state.conversations.map((one) => {
    const title = titleOf(one);
    const current = one === state.current;
    const open = node('button', {type: 'button', class: 'open', title, onclick: () => openConversation(one)}, title);
    if (current) open.setAttribute('aria-current', 'true');
    return node('li', {class: current ? 'current' : ''}, open,
      node('button', {type: 'button', class: 'remove', 'aria-label': 'Delete ' + title,
                      onclick: () => removeConversation(one)}, '✕'));
  }));
}

// ---- Messages -----------------------------------------------------------------------------------

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    const before = button.textContent;
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = before; }, 1200);
  } catch {
    say('The browser does not let pages copy here.');
  }
}

function action(text, label, run) {
  return node('button', {type: 'button', 'aria-label': label, onclick: run}, text);
}

function fillReply(body, message) {
  const parts = [];
  if (message.thoughts) {
    const thoughts = node('details', {}, node('summary', {}, 'Thoughts'), ...markdown(message.thoughts));
    thoughts.open = body.querySelector('details')?.open || false;
    parts.push(thoughts);
  }
  body.replaceChildren(...parts, ...markdown(message.content));
}

function messageNode(message, index) {
  const user = message.role === 'user';
  const kind = message.error ? 'error' : user ? 'user' : 'assistant';
  const body = node('div', {class: 'body'});
  if (user || message.error) body.textContent = message.content;
  else fillReply(body, message);
  const actions = node('div', {class: 'actions'});
  if (!message.error) {
    const copy = action('Copy', 'Copy this message', () => copyText(message.content, copy));
    actions.append(copy);
  }
  if (user) actions.append(action('Edit', 'Edit this message and ask again', () => edit(index)));
  const last = index === state.current.messages.length - 1;
  if (!user && last) actions.append(action('Regenerate', 'Write this reply again', regenerate));
  return node('article', {class: kind, 'aria-label': user ? 'You' : message.error ? 'Error' : 'Reply'},
              body, actions);
}

function showMessages() {
  const {messages} = state.current;
  const box = $('messages');
  box.replaceChildren(...messages.map(messageNode));
  if (messages.length === 0) {
    box.append(node('p', {class: 'empty'}, 'Ask something. Enter sends, Shift+Enter begins a new line.'));
  }
  box.scrollTop = box.scrollHeight;
}

function showAll() {
  showList();
  showMessages();
}

function edit(index) {
  stop();
  const message = state.current.messages[index];
  state.current.messages = state.current.messages.slice(0, index);
  save();
  showAll();
  $('input').value = message.content;
  grow();
  $('input').focus();
}

function regenerate() {
  if (state.running) return;
  const {messages} = state.current;
  while (messages.length > 0 && messages.at(-1).role !== 'user') messages.pop();
  if (messages.length > 0) ask();
}

// ---- Asking the server --------------------------------------------------------------------------

const FIELDS = [
  ['temperature', 'Temperature', 0, 5, 0.05],
  ['top_p', 'Top-p', 0, 1, 0.01],
  ['top_k', 'Top-k', 0, 1000, 1],
  ['min_p', 'Min-p', 0, 1, 0.01],
  ['repeat_penalty', 'Repeat penalty', 0.5, 3, 0.01],
  ['presence_penalty', 'Presence penalty', -2, 2, 0.05],
  ['frequency_penalty', 'Frequency penalty', -2, 2, 0.05],
  ['max_tokens', 'Most tokens', 1, 1000000, 1],
  ['seed', 'Seed', 0, 9007199254740991, 1],
];

function headers() {
  const all = {'Content-Type': 'application/json'};
  if (state.settings.key) all.Authorization = 'Bearer ' + state.settings.key;
  return all;
}

function requestBody() {
  const messages = state.current.messages.filter((one) => !one.error)
    .map(({role, content}) => ({role, content}));
  if (state.settings.system) messages.unshift({role: 'system', content: state.settings.system});
  const body = {messages, stream: true, stream_options: {include_usage: true}};
  for (const [name] of FIELDS) {
    if (typeof state.settings[name] === 'number') body[name] = state.settings[name];
  }
  return body;
}

async function errorOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return 'The server answered with status ' + response.status + '.';
  }
}

// The events of a stream, as objects.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  while (true) {
    const {value, done} = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split('\n\n');
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, '');
      if (data === '[DONE]') return;
      yield JSON.parse(data);
    }
  }
}

function take(event, message) {
  if (event.error) throw new Error(event.error.message);
  const delta = event.choices?.[0]?.delta || {};
  message.content += delta.content || '';
  message.thoughts += delta.reasoning_content || '';
  if (event.timings) showSpeed(event.timings);
}

function showSpeed(timings) {
  const rate = timings.predicted_per_second;
  $('speed').textContent = timings.predicted_n + ' tokens' + (rate > 0 ? ', ' + rate.toFixed(1) + ' tokens/s' : '');
}

async function ask() {
  const conversation = state.current;
  const running = new AbortController();
  state.running = running;
  showAll();
  setBusy(true);
  const message = {role: 'assistant', content: '', thoughts: ''};
  const shown = node('article', {class: 'assistant', 'aria-label': 'Reply', 'aria-busy': 'true'},
                     node('div', {class: 'body busy'}));
  $('messages').append(shown);
  const draw = drawing(shown.firstChild, message);
  try {
    const response = await fetch('v1/chat/completions', {
      method: 'POST', headers: headers(), body: JSON.stringify(requestBody()), signal: running.signal});
    if (!response.ok) throw new Error(await errorOf(response));
    for await (const event of events(response)) {
      take(event, message);
      draw();
    }
    say('The reply is complete.');
  } catch (error) {
    if (error.name === 'AbortError') say('Stopped.');
    else fail(conversation, message, error);
  }
  if (message.content || message.thoughts) conversation.messages.push(message);
  if (message.failure) conversation.messages.push({role: 'assistant', error: true, content: message.failure});
  delete message.failure;
  save();
  if (state.running === running) {
    state.running = null;
    setBusy(false);
  }
  if (state.current === conversation) showAll();
}

function fail(conversation, message, error) {
  const network = error instanceof TypeError;
  message.failure = network ? 'The server cannot be reached.' : error.message;
  say('The reply failed: ' + message.failure);
}

// Draws at most once for each frame, and keeps to the end where the reader is there.
function drawing(body, message) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const box = $('messages');
      const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
      fillReply(body, message);
      if (atEnd) box.scrollTop = box.scrollHeight;
    });
  };
}

function stop() {
  if (state.running) state.running.abort();
}

function setBusy(busy) {
  $('send').hidden = busy;
  $('stop').hidden = !busy;
  if (busy) say('The model is writing.');
}

function send() {
  const text = $('input').value.trim();
  if (text === '' || state.running) return;
  $('input').value = '';
  grow();
  state.current.messages.push({role: 'user', content: text});
  save();
  ask();
}

// ---- Settings, theme, menu ----------------------------------------------------------------------

function openSettings() {
  const form = $('settings').querySelector('form');
  for (const input of form.elements) {
    if (input.name) input.value = state.settings[input.name] ?? '';
  }
  $('settings').showModal();
}

function closeSettings() {
  if ($('settings').returnValue !== 'save') return;
  const form = $('settings').querySelector('form');
  const settings = {};
  for (const input of form.elements) {
    if (!input.name || input.value === '') continue;
    settings[input.name] = input.type === 'number' ? Number(input.value) : input.value;
  }
  state.settings = settings;
  kept.write('settings', settings);
  loadModel();
}

function makeFields() {
  $('fields').append(...FIELDS.map(([name, text, min, max, step]) =>
    node('label', {}, text, node('input', {name, type: 'number', min, max, step, inputmode: 'decimal'}))));
}

function showTheme() {
  const theme = kept.read('theme', '');
  if (theme) document.documentElement.dataset.theme = theme;
}

function turnTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  kept.write('theme', dark ? 'light' : 'dark');
  showTheme();
}

function closeMenu() {
  document.body.classList.remove('menu-open');
  $('menu').setAttribute('aria-expanded', 'false');
}

function openMenu() {
  document.body.classList.add('menu-open');
  $('menu').setAttribute('aria-expanded', 'true');
  $('new').focus();
}

function grow() {
  const input = $('input');
  input.style.height = 'auto';
  input.style.height = input.scrollHeight + 2 + 'px';
}

async function loadModel() {
  try {
    const response = await fetch('v1/models', {headers: headers()});
    if (response.status === 401) {
      say('This server wants an API key.');
      openSettings();
      return;
    }
    const [model] = (await response.json()).data;
    $('model').textContent = model.id;
    document.title = model.id + ' – leq';
  } catch {
    $('model').textContent = 'No server';
  }
}

// ---- Start --------------------------------------------------------------------------------------

$('composer').addEventListener('submit', (event) => { event.preventDefault(); send(); });
$('input').addEventListener('input', grow);
$('input').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !$('settings').open) {
    if (document.body.classList.contains('menu-open')) closeMenu();
    else stop();
  }
  if (event.altKey && event.code === 'KeyN') {
    event.preventDefault();
    startConversation();
  }
});
$('stop').addEventListener('click', stop);
$('new').addEventListener('click', startConversation);
$('menu').addEventListener('click', openMenu);
$('close-menu').addEventListener('click', closeMenu);
document.querySelector('main').addEventListener('click', (event) => {
  if (event.target.id !== 'menu') closeMenu();
});
$('theme').addEventListener('click', turnTheme);
$('settings-button').addEventListener('click', openSettings);
$('settings').addEventListener('close', closeSettings);
$('reset').addEventListener('click', () => $('settings').querySelector('form').reset());

showTheme();
makeFields();
startConversation();
loadModel();
