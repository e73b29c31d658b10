// ---- Formulas: the TeX that models write, as MathML ----------------------------------------------
// What is not known stays as it was written. Each token is looked at a bounded number of times.

const MOST_FORMULA = 4000;       // characters
const MOST_FORMULA_DEPTH = 40;   // groups within each other

// Tables of names that a model writes: `__proto__: null`, or `constructor` would be in each.
const GREEK = {
  __proto__: null,
  alpha: 'α', beta: 'β', gamma: 'γ', delta: 'δ', epsilon: 'ϵ', varepsilon: 'ε', zeta: 'ζ', eta: 'η', theta: 'θ',
  vartheta: 'ϑ', iota: 'ι', kappa: 'κ', lambda: 'λ', mu: 'μ', nu: 'ν', xi: 'ξ', pi: 'π', rho: 'ρ', sigma: 'σ',
  tau: 'τ', upsilon: 'υ', phi: 'ϕ', varphi: 'φ', chi: 'χ', psi: 'ψ', omega: 'ω', Gamma: 'Γ', Delta: 'Δ',
  Theta: 'Θ', Lambda: 'Λ', Xi: 'Ξ', Pi: 'Π', Sigma: 'Σ', Upsilon: 'Υ', Phi: 'Φ', Psi: 'Ψ', Omega: 'Ω',
  infty: '∞', partial: '∂', nabla: '∇', ell: 'ℓ', hbar: 'ℏ', Re: 'ℜ', Im: 'ℑ', emptyset: '∅', varnothing: '∅',
};
const OPERATORS = {
  __proto__: null,
  times: '×', cdot: '·', div: '÷', pm: '±', mp: '∓', ast: '∗', star: '⋆', circ: '∘', bullet: '•', oplus: '⊕',
  otimes: '⊗', le: '≤', leq: '≤', ge: '≥', geq: '≥', ne: '≠', neq: '≠', approx: '≈', equiv: '≡', sim: '∼',
  simeq: '≃', cong: '≅', propto: '∝', ll: '≪', gg: '≫', in: '∈', notin: '∉', ni: '∋', subset: '⊂',
  subseteq: '⊆', supset: '⊃', supseteq: '⊇', cup: '∪', cap: '∩', setminus: '∖', to: '→', rightarrow: '→',
  leftarrow: '←', leftrightarrow: '↔', Rightarrow: '⇒', Leftarrow: '⇐', Leftrightarrow: '⇔', implies: '⟹',
  iff: '⟺', mapsto: '↦', uparrow: '↑', downarrow: '↓', forall: '∀', exists: '∃', nexists: '∄', neg: '¬',
  lnot: '¬', land: '∧', wedge: '∧', lor: '∨', vee: '∨', therefore: '∴', because: '∵', perp: '⊥', parallel: '∥',
  mid: '∣', angle: '∠', triangle: '△', ldots: '…', dots: '…', cdots: '⋯', vdots: '⋮', ddots: '⋱', prime: '′',
  lfloor: '⌊', rfloor: '⌋', lceil: '⌈', rceil: '⌉', langle: '⟨', rangle: '⟩', vert: '|', Vert: '‖', backslash: '\\',
  lbrace: '{', rbrace: '}', '{': '{', '}': '}', '|': '‖', '%': '%', '#': '#', $: '$', '&': '&', _: '_',
};
const LARGE = {__proto__: null, sum: '∑', prod: '∏', coprod: '∐', bigcup: '⋃', bigcap: '⋂', bigoplus: '⨁', bigotimes: '⨂'};
const INTEGRALS = {__proto__: null, int: '∫', iint: '∬', iiint: '∭', oint: '∮'};
const FUNCTIONS = new Set(('sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp det dim ker ' +
                           'gcd deg arg Pr hom').split(' '));
const LIMITS = new Set(['lim', 'max', 'min', 'sup', 'inf', 'limsup', 'liminf', 'argmax', 'argmin']);
const ACCENTS = {__proto__: null, hat: '^', widehat: '^', bar: '‾', overline: '‾', vec: '→', tilde: '~', widetilde: '~', dot: '˙', ddot: '¨'};
const SPACES = {__proto__: null, ',': '.17em', ':': '.22em', ';': '.28em', ' ': '.28em', '!': '-.17em', quad: '1em', qquad: '2em'};
const DOUBLE = {__proto__: null, N: 'ℕ', Z: 'ℤ', Q: 'ℚ', R: 'ℝ', C: 'ℂ', P: 'ℙ', E: '𝔼', F: '𝔽', H: 'ℍ', 1: '𝟙'};
const FENCES = {__proto__: null, matrix: ['', ''], pmatrix: ['(', ')'], bmatrix: ['[', ']'], Bmatrix: ['{', '}'], vmatrix: ['|', '|'],
                Vmatrix: ['‖', '‖'], cases: ['{', '']};
const SIZES = new Set(['big', 'Big', 'bigg', 'Bigg', 'bigl', 'bigr', 'Bigl', 'Bigr', 'displaystyle', 'textstyle',
                       'limits', 'nolimits', 'boldsymbol']);

function maths(name, attributes = {}, ...children) {
  const made = document.createElementNS('http://www.w3.org/1998/Math/MathML', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

class Formula {
  constructor(text, display) {
    this.text = text;
    this.display = display;
    this.tokens = [...text.matchAll(/\\[a-zA-Z]+\*?|\\[\s\S]|\d+(?:\.\d+)?|\s+|[\s\S]/gu)]
      .map((found) => ({text: found[0], at: found.index}));
    this.next = 0;
    this.depth = 0;
  }
  peek() {
    while (this.tokens[this.next] && /^\s/.test(this.tokens[this.next].text)) ++this.next;
    return this.tokens[this.next]?.text;
  }
  take() {
    const token = this.peek();
    ++this.next;
    return token;
  }
  // Until one of these tokens, which stays.
  row(ends) {
    if (++this.depth > MOST_FORMULA_DEPTH) throw new RangeError('depth');
    const nodes = [];
    while (this.peek() !== undefined && !ends.includes(this.peek())) nodes.push(this.scripted());
    --this.depth;
    return nodes;
  }
  rowNode(ends) {
    const nodes = this.row(ends);
    return nodes.length === 1 ? nodes[0] : fill(maths('mrow'), nodes);
  }
  // What follows a command: a group or one token.
  argument() {
    if (this.peek() === undefined) return maths('mrow');
    if (this.peek() !== '{') return this.atom();
    this.take();
    const inner = this.rowNode(['}']);
    this.take();
    return inner;
  }
  // The letters of a group, as they are.
  rawArgument() {
    if (this.peek() !== '{') return this.take() ?? '';
    this.take();
    const from = this.tokens[this.next]?.at ?? this.text.length;
    let open = 1;
    for (; this.next < this.tokens.length; ++this.next) {
      const {text} = this.tokens[this.next];
      open += text === '{' ? 1 : text === '}' ? -1 : 0;
      if (open === 0) break;
    }
    const raw = this.text.slice(from, this.tokens[this.next]?.at ?? this.text.length);
    ++this.next;
    return raw;
  }
  scripted() {
    const isLarge = (token) => token?.[0] === '\\' && (token.slice(1) in LARGE || LIMITS.has(token.slice(1)));
    const over = this.display && isLarge(this.peek());
    const base = this.peek() === '^' || this.peek() === '_' ? maths('mrow') : this.atom();
    let low = null, high = null, primes = '';
    for (let token = this.peek(); token === '^' || token === '_' || token === "'"; token = this.peek()) {
      this.take();
      if (token === "'") primes += '′';
      else if (token === '^') high = this.argument();
      else low = this.argument();
    }
    if (primes) high = high ? maths('mrow', {}, maths('mo', {}, primes), high) : maths('mo', {}, primes);
    if (low && high) return maths(over ? 'munderover' : 'msubsup', {}, base, low, high);
    if (low) return maths(over ? 'munder' : 'msub', {}, base, low);
    if (high) return maths(over ? 'mover' : 'msup', {}, base, high);
    return base;
  }
  atom() {
    const token = this.take();
    if (token === '{') {
      const inner = this.rowNode(['}']);
      this.take();
      return inner;
    }
    if (token[0] === '\\' && token.length > 1) return this.command(token.slice(1));
    if (/^\d/.test(token)) return maths('mn', {}, token);
    if (/^\p{L}$/u.test(token)) return maths('mi', {}, token);
    return maths('mo', token === '|' ? {stretchy: 'false'} : {}, token === '-' ? '−' : token);
  }
  fence(token) {
    if (token === undefined || token === '.') return '';
    return token[0] === '\\' ? OPERATORS[token.slice(1)] ?? token : token;
  }
  fenced() {
    const open = this.fence(this.take());
    const inner = this.row(['\\right']);
    this.take();
    const close = this.fence(this.take());
    const side = (text, form) => maths('mo', {fence: 'true', stretchy: 'true', form}, text);
    return fill(maths('mrow', {}, side(open, 'prefix')), [...inner, side(close, 'postfix')]);
  }
  environment() {
    const name = this.rawArgument().replace('*', '');
    if (name === 'array') this.rawArgument();
    const table = maths('mtable', FENCES[name] ? {} : {displaystyle: 'true'});
    let line = maths('mtr');
    while (this.peek() !== undefined) {
      const cell = fill(maths('mtd'), this.row(['&', '\\\\', '\\end']));
      line.append(cell);
      const end = this.take();
      if (end === '&') continue;
      table.append(line);
      line = maths('mtr');
      if (end === '\\end' || end === undefined) break;
    }
    this.rawArgument();
    const aligned = !FENCES[name] && name !== 'gathered' && name !== 'array';
    if (aligned) table.setAttribute('class', 'aligned');
    if (name === 'cases') table.setAttribute('class', 'cases');
    const [open, close] = FENCES[name] ?? ['', ''];
    if (!open && !close) return table;
    const side = (text) => maths('mo', {fence: 'true', stretchy: 'true'}, text);
    return maths('mrow', {}, side(open), table, ...(close ? [side(close)] : []));
  }
  root() {
    if (this.peek() !== '[') return maths('msqrt', {}, this.argument());
    this.take();
    const index = this.rowNode([']']);
    this.take();
    return maths('mroot', {}, this.argument(), index);
  }
  command(name) {
    const plain = name.replace('*', '');
    if (name in GREEK) return maths('mi', {}, GREEK[name]);
    if (name in OPERATORS) return maths('mo', {}, OPERATORS[name]);
    if (name in LARGE) return maths('mo', {largeop: 'true', movablelimits: 'false'}, LARGE[name]);
    if (name in INTEGRALS) return maths('mo', {largeop: 'true'}, INTEGRALS[name]);
    if (FUNCTIONS.has(name) || LIMITS.has(name)) return maths('mi', {}, name);
    if (name in SPACES) return maths('mspace', {width: SPACES[name]});
    if (name in ACCENTS) return maths('mover', {accent: 'true'}, this.argument(), maths('mo', {}, ACCENTS[name]));
    if (/^[dt]?frac$/.test(name)) return maths('mfrac', {}, this.argument(), this.argument());
    if (/^[dt]?binom$/.test(name)) {
      return maths('mrow', {}, maths('mo', {}, '('),
                   maths('mfrac', {linethickness: '0'}, this.argument(), this.argument()), maths('mo', {}, ')'));
    }
    if (name === 'sqrt') return this.root();
    if (name === 'left') return this.fenced();
    if (name === 'begin') return this.environment();
    if (name === 'underline') return maths('munder', {}, this.argument(), maths('mo', {}, '_'));
    if (name === 'mathbb') {
      return maths('mi', {mathvariant: 'normal'}, [...this.rawArgument()].map((one) => DOUBLE[one] ?? one).join(''));
    }
    if (/^(text|textrm|textit|textbf|mbox)$/.test(name)) return maths('mtext', {}, this.rawArgument());
    if (/^(mathrm|operatorname|mathbf|mathit|mathcal|mathfrak|mathsf|mathtt)$/.test(plain)) {
      return maths('mi', {mathvariant: 'normal', class: plain === 'mathbf' ? 'bold' : ''}, this.rawArgument());
    }
    if (SIZES.has(name)) return maths('mrow');
    return maths('mtext', {}, '\\' + name);
  }
  read() {
    const nodes = [];
    while (this.peek() !== undefined) {
      nodes.push(...this.row(['}', '&', '\\\\', '\\end', '\\right']));
      if (this.peek() !== undefined) this.take();  // an end without its beginning
    }
    return nodes;
  }
}

// A formula, or null where its text is too long or reading it fails, as too deep a one does.
function formula(text, display) {
  if (text.length > MOST_FORMULA) return null;
  try {
    const made = maths('math', display ? {display: 'block'} : {});
    const nodes = new Formula(text, display).read();
    return fill(made, [fill(maths('mrow'), nodes)]);
  } catch {
    return null;
  }
}
