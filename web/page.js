'use strict';
// The page to chat with. No framework, and no text of a model ever becomes markup: all nodes are
// made one by one.

const state = {
  conversations: [],
  current: null,
  settings: kept.read('settings', {}),
  running: new Map(),  // the AbortControllers of replies in work, by conversation
  editing: null,  // the place of the message that is being edited
  context: 0,     // tokens of a conversation at most; 0: not known
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

const isRunning = () => state.running.has(state.current);

// For screen readers.
function say(text) { $('status').textContent = text; }

// For everybody, until it is closed.
function notify(text) {
  $('notice').hidden = false;
  $('notice').firstElementChild.textContent = text;
  say(text);
}

// ---- Conversations ------------------------------------------------------------------------------

function save(conversation = state.current) {
  const isHere = state.conversations.includes(conversation);  // not deleted while its reply was in work
  if (isHere && conversation.messages.length > 0) keepConversation(conversation);
}

function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = conversation.messages.find((message) => message.role === 'user');
  return first ? first.content.slice(0, 60) : 'New conversation';
}

function startConversation() {
  endEdit();
  const empty = state.conversations.find((one) => one.messages.length === 0);
  state.current = empty || {id: newId(), messages: []};
  if (!empty) state.conversations.unshift(state.current);
  closeMenu();
  showAll();
  $('input').focus();
}

function openConversation(conversation) {
  state.current = conversation;
  endEdit();
  closeMenu();
  showAll();
}

function removeConversation(conversation) {
  if (!confirm('Delete “' + titleOf(conversation) + '”?')) return;
  state.running.get(conversation)?.abort();
  state.conversations = state.conversations.filter((one) => one !== conversation);
  kept.remove('chat.' + conversation.id);
  if (state.current === conversation) startConversation();
  else showList();
}

function rename(conversation) {
  const title = prompt('Name of this conversation', titleOf(conversation));
  if (title === null) return;
  conversation.title = title.trim() || undefined;
  save(conversation);
  showList();
}

const found = (conversation, text) =>
  text === '' || titleOf(conversation).toLowerCase().includes(text) ||
  conversation.messages.some((message) => (message.content || '').toLowerCase().includes(text));

function showList() {
  const text = $('search').value.trim().toLowerCase();
  stores.session.setItem('leq.current', state.current.id);
  $('conversations').replaceChildren(...state.conversations.filter((one) => found(one, text)).map((one) => {
    const title = titleOf(one);
    const current = one === state.current;
    const open = node('button', {type: 'button', class: 'open', title, onclick: () => openConversation(one)}, title);
    if (current) open.setAttribute('aria-current', 'true');
    return node('li', {class: current ? 'current' : ''}, open,
      node('button', {type: 'button', class: 'remove', 'aria-label': 'Rename ' + title,
                      onclick: () => rename(one)}, '✎'),
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
    notify('The browser does not let pages copy here.');
  }
}

function action(text, label, run) {
  return node('button', {type: 'button', 'aria-label': label, onclick: run}, text);
}

function fillReply(body, message) {
  const parts = [];
  if (message.thoughts) {
    const thoughts = fill(node('details', {}, node('summary', {}, 'Thoughts')), markdown(message.thoughts));
    thoughts.open = body.querySelector('details')?.open || false;
    parts.push(thoughts);
  }
  body.replaceChildren(...parts);
  fill(body, markdown(message.content));
}

function messageNode(message, index) {
  const user = message.role === 'user';
  const kind = message.error ? 'error' : user ? 'user' : 'assistant';
  const body = node('div', {class: 'body', dir: 'auto'});
  if (message.error) body.textContent = message.content;
  else fillReply(body, message);
  const actions = node('div', {class: 'actions'});
  if (!message.error) {
    const copy = action('Copy', 'Copy this message', () => copyText(message.content, copy));
    actions.append(copy);
  }
  if (!message.error) actions.append(action('Edit', user ? 'Edit this message and ask again' : 'Edit this reply', () => edit(index)));
  const last = index === state.current.messages.length - 1;
  if (!user && last && !message.error) actions.append(action('Continue', 'Go on with this reply', proceed));
  if (!user && last) actions.append(action('Regenerate', 'Write this reply again', regenerate));
  if (message.alternatives) actions.append(...versions(message, index));
  if (message.stats) actions.append(node('span', {class: 'stats'}, message.stats));
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
  if (isRunning()) {
    box.lastElementChild.setAttribute('aria-busy', 'true');
    box.lastElementChild.firstChild.classList.add('busy');
  }
  box.scrollTop = box.scrollHeight;
}

function showAll() {
  showList();
  showMessages();
  $('send').hidden = isRunning();
  $('stop').hidden = !isRunning();
}

// ---- Versions ------------------------------------------------------------------------------------
// A message knows what else has stood in its place: `alternatives`, each with all that followed it.

function versions(message, index) {
  const count = message.alternatives.length + 1;
  const turn = (by) => () => showVersion(index, (message.place + by + count) % count);
  return [action('‹', 'The version before', turn(-1)),
          node('span', {class: 'stats'}, (message.place + 1) + '/' + count),
          action('›', 'The next version', turn(1))];
}

// What stands from a place on, as a list of all its versions; the messages lose it.
function takeVersions(index) {
  const tail = state.current.messages.splice(index);
  const {alternatives = [], place = 0} = tail[0];
  delete tail[0].alternatives;
  delete tail[0].place;
  const all = [...alternatives];
  all.splice(place, 0, tail);
  return all;
}

function putVersion(all, place) {
  const [tail] = all.splice(place, 1);
  if (all.length > 0) Object.assign(tail[0], {alternatives: all, place});
  state.current.messages.push(...tail);
}

function showVersion(index, place) {
  if (isRunning()) return;
  putVersion(takeVersions(index), place);
  save();
  showAll();
}

function addVersion(index, message) {
  const all = index < state.current.messages.length ? takeVersions(index) : [];
  all.push([message]);
  putVersion(all, all.length - 1);
}

// The message is copied into the composer; nothing changes before it is sent.
function edit(index) {
  stop();
  state.editing = index;
  state.draft = $('input').value;
  $('input').value = state.current.messages[index].content;
  const isReply = state.current.messages[index].role !== 'user';
  $('composer').classList.add(isReply ? 'editing-reply' : 'editing');
  if (isReply) $('send').textContent = 'Save';
  grow();
  $('input').focus();
}

function endEdit() {
  if (state.editing === null) return false;
  state.editing = null;
  $('input').value = state.draft;
  $('composer').classList.remove('editing', 'editing-reply');
  $('send').textContent = 'Send';
  grow();
  return true;
}

function regenerate() {
  if (isRunning()) return;
  const {messages} = state.current;
  const last = messages.findLastIndex((message) => message.role === 'user');
  if (last >= 0) ask({index: last + 1});
}

function proceed() {
  const last = state.current.messages.at(-1);
  if (!isRunning() && last?.role === 'assistant') ask({into: last});
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
  ['max_tokens', 'Max tokens', 1, 1000000, 1],
  ['seed', 'Seed', 0, 9007199254740991, 1],
];

function headers() {
  const all = {'Content-Type': 'application/json'};
  if (state.settings.key) all.Authorization = 'Bearer ' + state.settings.key;
  return all;
}

function requestBody(past, goesOn) {
  const messages = past.filter((one) => !one.error)
    .map(({role, content}) => ({role, content}));
  if (state.settings.system) messages.unshift({role: 'system', content: state.settings.system});
  const body = {messages, stream: true, stream_options: {include_usage: true}};
  if (!$('models').hidden) body.model = $('models').value;
  for (const [name] of FIELDS) {
    if (typeof state.settings[name] === 'number') body[name] = state.settings[name];
  }
  if (goesOn) Object.assign(body, {continue_final_message: true, add_generation_prompt: false});
  const {stop: ends, thinking, schema} = state.settings;
  if (ends) body.stop = ends.split('\n').filter((line) => line !== '');
  if (thinking) body.chat_template_kwargs = {enable_thinking: thinking === 'on'};
  if (schema) body.response_format = {type: 'json_schema', json_schema: {name: 'reply', schema: JSON.parse(schema)}};
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
      if (!part.startsWith('data: ')) continue;  // says that the server is there
      const data = part.slice(6);
      if (data === '[DONE]') return;
      yield JSON.parse(data);
    }
  }
}

function take(event, message, conversation) {
  if (event.error) throw new Error(event.error.message);
  const delta = event.choices?.[0]?.delta || {};
  message.content += delta.content || '';
  message.thoughts += delta.reasoning_content || '';
  if (event.warnings) notify(event.warnings.join('; '));
  if (event.timings) {
    const used = event.timings.cache_n + event.timings.prompt_n + event.timings.predicted_n;
    message.stats = speedText(event.timings, used);
    if (state.current !== conversation) return;
    $('speed').textContent = message.stats;
    $('speed').title = state.context ? used + ' of ' + state.context + ' tokens of context are used' : '';
  }
}

// Tokens of the reply, its speed, and how full the context is.
function speedText(timings, used) {
  const rate = timings.predicted_per_second;
  return [
    timings.predicted_n + ' tokens',
    rate > 0 ? rate.toFixed(1) + ' tokens/s' : '',
    state.context ? 'context ' + Math.min(100, Math.ceil(100 * used / state.context)) + ' %' : '',
  ].filter((part) => part !== '').join(', ');
}

// A new version of what stands at `index`, or more of the reply `into`. The reply is a part of the
// conversation from its first letter on, so that no reload loses it; it goes on while another conversation is open.
async function ask({index = state.current.messages.length, into = null} = {}) {
  const conversation = state.current;
  let body;
  try {
    body = requestBody(conversation.messages.slice(0, into ? undefined : index), into !== null);
  } catch (error) {
    return notify('The schema in Settings is not JSON: ' + error.message);
  }
  const running = new AbortController();
  state.running.set(conversation, running);
  const message = into || {role: 'assistant', content: '', thoughts: ''};
  const before = message.content;
  if (!into) addVersion(index, message);
  showAll();
  say('The model is writing.');
  const draw = drawing(conversation, message);
  let saved = performance.now();
  try {
    const response = await fetch('v1/chat/completions', {
      method: 'POST', headers: headers(), body: JSON.stringify(body), signal: running.signal});
    if (!response.ok) throw new Error(await errorOf(response));
    for await (const event of events(response)) {
      take(event, message, conversation);
      draw();
      if (performance.now() - saved > 1000) {
        save(conversation);
        saved = performance.now();
      }
    }
    say('The reply is complete.');
  } catch (error) {
    if (error.name === 'AbortError') say('Stopped.');
    else if (!state.leaving) fail(conversation, message, error);
  }
  state.running.delete(conversation);
  finish(conversation, message, before, into === null);
  if (state.current === conversation) showAll();
}

// A reply of nothing goes, and what stood there before comes back.
function finish(conversation, message, before, isNew) {
  const failure = message.failure;
  delete message.failure;
  if (isNew && !message.content && !message.thoughts) {
    const at = conversation.messages.indexOf(message);
    const all = message.alternatives || [];
    conversation.messages.splice(at, 1, ...(all.length > 0 ? all.pop() : []));
    if (all.length > 0) Object.assign(conversation.messages[at], {alternatives: all, place: all.length});
  }
  if (failure) conversation.messages.push({role: 'assistant', error: true, content: failure});
  save(conversation);
}

function fail(conversation, message, error) {
  const network = error instanceof TypeError;
  message.failure = network ? 'The server cannot be reached.' : error.message;
  notify('The reply failed: ' + message.failure);
}

// Draws at most once for each frame, and keeps to the end where the reader is there.
function drawing(conversation, message) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (state.current !== conversation || !isRunning()) return;
      const box = $('messages');
      const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
      fillReply(box.lastElementChild.firstChild, message);
      if (atEnd) box.scrollTop = box.scrollHeight;
    });
  };
}

function stop() {
  state.running.get(state.current)?.abort();
}

function send() {
  const text = $('input').value.trim();
  if (text === '' || isRunning()) return;
  const index = state.editing ?? state.current.messages.length;
  const role = state.current.messages[index]?.role || 'user';
  if (state.editing !== null) endEdit();
  else $('input').value = '';
  grow();
  // Errors are told, not sent: they go where something new is said.
  if (index === state.current.messages.length) {
    state.current.messages = state.current.messages.filter((one) => !one.error);
  }
  const place = Math.min(index, state.current.messages.length);
  addVersion(place, {role, content: text});
  save();
  if (role === 'user') ask();
  else showAll();
}

// ---- Files -----------------------------------------------------------------------------------------

function exportAll() {
  const text = JSON.stringify({leq: 1, conversations: state.conversations.filter((one) => one.messages.length > 0)}, null, 1);
  const address = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  const to = node('a', {href: address, download: 'conversations.json'});
  to.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function importText(text) {
  let all = [], read = [];
  try {
    all = JSON.parse(text).conversations;
    read = all.filter(sound);
  } catch {
    return notify('This file holds no conversations.');
  }
  tellLeftOut(all.length - read.length, 'this file');
  for (const one of read) {
    const added = {...one, id: newId()};
    delete added.revision;
    state.conversations.push(added);
    save(added);
  }
  showList();
}

async function importFile() {
  const [file] = $('import').files;
  if (file) importText(await file.text());
  $('import').value = '';
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

// A heading for one model, a choice among several: the one that was chosen last.
function showModels(names) {
  const last = kept.read('model', '');
  const name = names.includes(last) ? last : names[0] || 'no model';
  $('model').textContent = name;
  document.title = name + ' – leq';
  $('models').replaceChildren(...names.map((one) => node('option', {}, one)));
  $('models').value = name;
  $('models').hidden = names.length < 2;
  $('model').classList.toggle('visually-hidden', names.length > 1);
}

function chooseModel() {
  kept.write('model', $('models').value);
  $('model').textContent = $('models').value;
  document.title = $('models').value + ' – leq';
  loadDefaults();
}

// The server's own settings of this model, shown where a field is empty.
async function loadDefaults() {
  state.context = 0;
  const query = $('models').hidden ? '' : '?model=' + encodeURIComponent($('models').value);
  try {
    const {n_ctx: context, params} = (await (await fetch('props' + query, {headers: headers()})).json()).default_generation_settings;
    state.context = context;
    for (const [name] of FIELDS) {
      const value = params[name];
      $('settings').querySelector(`[name=${name}]`).placeholder = typeof value === 'number' && value >= 0 ? +value.toPrecision(6) : '';
    }
  } catch {
    // An older server, or a model that is not loaded: the fields stay without defaults.
  }
}

async function loadModel() {
  try {
    const response = await fetch('v1/models', {headers: headers()});
    if (response.status === 401) {
      notify('This server requires an API key.');
      openSettings();
      return;
    }
    showModels((await response.json()).data.map((model) => model.id));
    loadDefaults();
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
    else if (!endEdit()) stop();
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
$('models').addEventListener('change', chooseModel);
$('theme').addEventListener('click', turnTheme);
$('settings-button').addEventListener('click', openSettings);
$('settings').addEventListener('close', closeSettings);
$('reset').addEventListener('click', () => {
  for (const input of $('settings').querySelector('form').elements) if (input.name) input.value = '';
});
$('notice').querySelector('button').addEventListener('click', () => { $('notice').hidden = true; });
$('search').addEventListener('input', showList);
$('export').addEventListener('click', exportAll);
$('import-button').addEventListener('click', () => $('import').click());
$('import').addEventListener('change', importFile);
window.addEventListener('storage', takeFromOtherTab);
// A page that is left ends its requests, which is no failure.
window.addEventListener('pagehide', () => {
  state.leaving = true;
  for (const conversation of state.running.keys()) save(conversation);
});
window.addEventListener('pageshow', () => { state.leaving = false; });

showTheme();
makeFields();
state.conversations = readConversations();
const before = state.conversations.find((one) => one.id === stores.session.getItem('leq.current'));
if (before) openConversation(before);
else startConversation();
if (!stores.keeps) notify('The browser refuses to store data of this page: conversations end with it.');
loadModel();
