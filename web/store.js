// ---- What the browser keeps ---------------------------------------------------------------------
// Each conversation under a name of its own, so that tabs never write over each other's.

// Storage of this page alone, where the browser refuses its own (blocked site data, a sandboxed frame).
class PageStorage {
  texts = new Map();
  get length() { return this.texts.size; }
  key(i) { return [...this.texts.keys()][i]; }
  getItem(name) { return this.texts.get(name) ?? null; }
  setItem(name, text) { this.texts.set(name, text); }
  removeItem(name) { this.texts.delete(name); }
}

const stores = (() => {
  try {
    return {local: window.localStorage, session: window.sessionStorage, keeps: true};
  } catch {
    return {local: new PageStorage(), session: new PageStorage(), keeps: false};
  }
})();

const kept = {
  read(name, fallback) {
    try {
      const text = stores.local.getItem('leq.' + name);
      return text === null ? fallback : JSON.parse(text);
    } catch {
      return fallback;
    }
  },
  // false where there is no room.
  write(name, value) {
    try {
      stores.local.setItem('leq.' + name, JSON.stringify(value));
      return true;
    } catch {
      notify('Browser storage is full; delete some conversations to save new ones.');
      return false;
    }
  },
  remove(name) { stores.local.removeItem('leq.' + name); },
};

const CHAT = 'leq.chat.';

function newId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join('');
}

const isText = (value) => typeof value === 'string';
const isTextOrNone = (value) => value === undefined || isText(value);

const isMessage = (one) =>
  isText(one?.role) && isText(one.content) && [one.thoughts, one.stats, one.failure].every(isTextOrNone) &&
  Number.isInteger(one.place ?? 0) && (one.alternatives === undefined || Array.isArray(one.alternatives));

// Whether the page can show it: what a file or the store holds may be damaged or foreign.
function sound(conversation) {
  const lists = [conversation?.messages];
  for (const list of lists) {  // grows by the alternatives within
    if (!Array.isArray(list) || !list.every(isMessage)) return false;
    for (const {alternatives = []} of list) for (const tail of alternatives) lists.push(tail);
  }
  return isTextOrNone(conversation.title) && lists.slice(1).every((tail) => tail.length > 0);
}

// null where there is none, or one that is not sound.
function readConversation(id) {
  const stored = kept.read('chat.' + id, null);
  return sound(stored) ? stored : null;
}

// All that are kept, the one changed last first.
function readConversations() {
  for (const old of kept.read('conversations', [])) {  // of pages before: one list of all
    if (kept.read('chat.' + old.id, null) === null && !kept.write('chat.' + old.id, old)) return [];
  }
  kept.remove('conversations');
  const keys = Array.from({length: stores.local.length}, (_, i) => stores.local.key(i));
  const ids = keys.filter((key) => key.startsWith(CHAT)).map((key) => key.slice(CHAT.length));
  const all = ids.map(readConversation).filter((one) => one !== null);
  tellLeftOut(ids.length - all.length, 'the browser’s storage');
  return all.sort((a, b) => (b.changed || 0) - (a.changed || 0));
}

function tellLeftOut(count, where) {
  if (count > 0) notify('Conversations in ' + where + ' that cannot be read and are left out: ' + count);
}

// Where another tab has written the same conversation since it was read here, this one becomes a
// conversation of its own: nothing is written over.
function keepConversation(conversation) {
  const stored = readConversation(conversation.id);
  if (stored && stored.revision !== conversation.revision) {
    state.conversations.unshift(stored);
    conversation.id = newId();
    conversation.title = titleOf(conversation) + ' (this tab)';
    notify('Another tab changed this conversation; both versions are kept.');
  }
  const revision = newId();
  if (!kept.write('chat.' + conversation.id, {...conversation, revision, changed: Date.now()})) return;
  conversation.revision = revision;
  conversation.changed = Date.now();
}

// What another tab has written or deleted.
function takeFromOtherTab(event) {
  if (!event.key || !event.key.startsWith(CHAT)) return;
  const id = event.key.slice(CHAT.length);
  const known = state.conversations.findIndex((one) => one.id === id);
  // What is open, or in work, is this page's own.
  const open = known >= 0 && state.conversations[known] === state.current;
  if (!open && state.running.has(state.conversations[known])) return;
  const stored = readConversation(id);
  if (stored === null) {
    if (known >= 0 && !open) state.conversations.splice(known, 1);
    else if (open) delete state.current.revision;
  } else if (known < 0) {
    state.conversations.push(stored);
  } else if (!open) {
    state.conversations[known] = stored;
  } else if (!isRunning()) {
    Object.assign(state.current, stored);
    showMessages();
  }
  showList();
}
