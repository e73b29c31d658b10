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

// All that are kept, the one changed last first.
function readConversations() {
  for (const old of kept.read('conversations', [])) {  // of pages before: one list of all
    if (kept.read('chat.' + old.id, null) === null && !kept.write('chat.' + old.id, old)) return [];
  }
  kept.remove('conversations');
  const all = [];
  for (let i = 0; i < stores.local.length; ++i) {
    const key = stores.local.key(i);
    const one = key.startsWith(CHAT) ? kept.read(key.slice(4), null) : null;
    if (one && Array.isArray(one.messages)) all.push(one);
  }
  return all.sort((a, b) => (b.changed || 0) - (a.changed || 0));
}

// Where another tab has written the same conversation since it was read here, this one becomes a
// conversation of its own: nothing is written over.
function keepConversation(conversation) {
  const stored = kept.read('chat.' + conversation.id, null);
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
  const stored = kept.read('chat.' + id, null);
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
