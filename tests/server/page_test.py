"""The page in a headless Chromium, driven over the WebDriver protocol: page_test.py TOOLS [SHOTS]

SHOTS: a folder for screenshots. Skipped where chromium or chromedriver is not there.
"""

import base64
import http.server
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from served import Served, check, skip

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
ENTER, ESCAPE, TAB = "\ue007", "\ue00c", "\ue004"

HOSTILE = """# Title
<img src=x onerror="window.hacked=1"> <script>window.hacked=1</script> **bold** *em* `a<b>`
- one
- two
  1. inner

| a | b |
|---|---|
| 1 | <b>2</b> |

```html
<script>window.hacked=1</script>
```
[bad](javascript:window.hacked=1) [good](https://example.org/x) > not a quote"""


class Browser:
    def __init__(self, **preferences):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.profile = tempfile.TemporaryDirectory(prefix="leq-page-")
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        options = {"binary": shutil.which("chromium"),
                   "args": ["--headless=new", "--no-sandbox", "--disable-gpu",
                            "--disable-dev-shm-usage", f"--user-data-dir={self.profile.name}"],
                   "prefs": preferences}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options,
                  "goog:loggingPrefs": {"browser": "ALL"}}
        for _ in range(100):
            try:
                self.session = self.ask("POST", "/session",
                                        {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("chromedriver does not answer")

    def close(self):
        try:
            self.command("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.profile.cleanup()

    def ask(self, method, path, body=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def command(self, method, path, body=None):
        return self.ask(method, f"/session/{self.session}{path}", body)

    def open(self, url):
        self.command("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        return self.command("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def keys(self, text, selector="#input"):
        found = self.command("POST", "/element", {"using": "css selector", "value": selector})
        self.command("POST", f"/element/{found[ELEMENT]}/value", {"text": text})

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.command("POST", "/actions",
                     {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def chord(self, held, key):
        actions = [{"type": "keyDown", "value": held}, {"type": "keyDown", "value": key},
                   {"type": "keyUp", "value": key}, {"type": "keyUp", "value": held}]
        self.command("POST", "/actions",
                     {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).click()", selector)

    def size(self, width, height):
        self.command("POST", "/window/rect", {"width": width, "height": height})

    def wait(self, script, what, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run("return " + script):
                print("ok", what)
                return
            time.sleep(0.05)
        raise AssertionError(what + ": " + self.run("return document.body.innerText"))

    def shoot(self, folder, name):
        if folder:
            picture = base64.b64decode(self.command("GET", "/screenshot"))
            (pathlib.Path(folder) / (name + ".png")).write_bytes(picture)


def texts(browser):
    return browser.run("return [...document.querySelectorAll('article .body')].map(b => b.innerText)")


REPLIED = "document.querySelectorAll('article.assistant').length == %d && document.getElementById('stop').hidden"


def converse(browser, shots):
    browser.wait("document.getElementById('model').textContent == 'storyteller'", "the model's name")
    browser.keys("Tell me a story about a small dragon." + ENTER)
    browser.wait(REPLIED % 1, "a reply")
    first = texts(browser)
    check(first[0] == "Tell me a story about a small dragon." and len(first[1]) > 20, "its text")
    browser.wait("/tokens\\/s/.test(document.getElementById('speed').textContent)", "tokens/s")
    check("complete" in browser.run("return document.getElementById('status').textContent"),
          "screen readers are told")
    browser.keys("And then?" + ENTER)
    browser.wait(REPLIED % 2, "a second reply")
    browser.shoot(shots, "light")
    browser.command("POST", "/refresh", {})
    browser.wait("document.querySelectorAll('article').length == 4", "a reload opens the same conversation")
    check(texts(browser)[:2] == first, "with the same texts")


def change(browser):
    browser.run("state.settings = {temperature: 0, max_tokens: 12}; kept.write('settings', state.settings)")
    press_action(browser, "Edit this message and ask again", 1)
    check(browser.run("return document.getElementById('input').value") == "And then?", "a message to edit")
    browser.press(" ", "x", ENTER)
    browser.wait(REPLIED % 2, "a reply to the edited message")
    written = texts(browser)[-1]
    check(texts(browser)[2] == "And then? x", "the edited message")
    press_action(browser, "Write this reply again")
    browser.wait("!document.getElementById('stop').hidden || " + REPLIED % 2, "the reply written again")
    browser.wait(REPLIED % 2, "it is there")
    check(texts(browser)[-1] == written, "the same at temperature 0")


def details(browser):
    browser.wait("/context \\d+ %/.test(document.getElementById('speed').textContent)", "how full the context is")
    check(browser.run("return document.querySelector('[name=temperature]').placeholder") != "",
          "defaults are in the fields of settings")
    browser.run("state.current.messages.unshift({role: 'user', content: '**מה** $a^2$\\nline'}); showAll()")
    own = "document.querySelector('article.user .body')"
    check(browser.run(f"return [{own}.querySelector('strong').textContent, {own}.querySelectorAll('math').length,"
                      f" getComputedStyle({own}).direction]") == ["מה", 1, "rtl"],
          "an own message is rendered, from right to left by its first letter")
    browser.run("state.current.messages.shift(); showAll()")
    press_action(browser, "Edit this reply")
    hint = "getComputedStyle(document.getElementById('composer'), '::before').content"
    check("saves" in browser.run("return " + hint) and browser.run("return $('send').textContent") == "Save",
          "a reply is saved, not sent")
    browser.press(ESCAPE)
    check(browser.run("return $('send').textContent") == "Send", "and then a message is sent")
    browser.run("fill(document.querySelector('#messages'), markdown('```\\n' + 'x'.repeat(300) + '\\n```'))")
    over = browser.run("const b = document.querySelector('pre button').getBoundingClientRect(),"
                       " c = document.querySelector('pre code').getBoundingClientRect(); return b.bottom <= c.top + 1")
    check(over, "the copy button is above the code")
    browser.run("showAll()")


def press_action(browser, label, place=-1):
    browser.run("[...document.querySelectorAll('.actions button')].filter(b => b.getAttribute('aria-label') == arguments[0])"
                ".at(arguments[1]).click()", label, place)


def versions(browser):
    new = texts(browser)
    press_action(browser, "The version before", 0)
    check(texts(browser)[2] == "And then?" and len(texts(browser)) == 4, "the message before the edit is there")
    press_action(browser, "The next version", 0)
    check(texts(browser) == new, "and the edited one again")
    press_action(browser, "Edit this message and ask again", 1)
    browser.press("z", ESCAPE)
    check(texts(browser) == new and browser.run("return $('input').value") == "", "Escape undoes an edit")
    stored = browser.run("return readConversations().find(c => c.id == state.current.id).messages.length")
    check(stored == 4, "and nothing was cut in the store")
    before = texts(browser)[-1]
    press_action(browser, "Go on with this reply")
    browser.wait("!isRunning()", "a reply goes on")
    check(texts(browser)[-1].startswith(before[:-1]), "from its text")


def marks(browser):
    cases = [["`a\\|b`", "CODE"], ["_it_", "EM"], ["__b__", "STRONG"], ["~~s~~", "DEL"]]
    found = browser.run("return arguments[0].map(([text]) => inline(text)[0].tagName)", cases)
    check(found == [tag for _, tag in cases], f"marks: {found}")
    check(browser.run("return inline('see https://a.example/x.')[1].href") == "https://a.example/x",
          "an address leaves the full stop")
    check(browser.run("return inline('\\\\*no\\\\* &amp; &lt;').join('')") == "*no* & <", "escapes and entities")
    check(browser.run("return cells('| a \\\\| b | `x\\\\|y` |')") == ["a | b", "`x|y`"], "pipes within cells")
    check(browser.run("return markdown('- [x] done')[0].textContent") == "☑ done", "lists of tasks")
    sides = browser.run("return [...markdown('|a|b|c|\\n|--:|:-:|:--|\\n|1|2|3|')[0].querySelectorAll('td')].map(c => c.className)")
    check(sides == ["right", "center", ""], f"columns have their sides: {sides}")
    for text in ("**a ", "`a ``b ", "[", "_a ", "*a* ", "https://"):
        check(browser.run("return markdown(arguments[0].repeat(16000)).length", text) >= 1, f"16,000 times {text!r}")
    # So long that the driver ends the script where a place is looked at again for each place before it.
    spaces, quotes = " " * 400_000, '"' + '\\"' * 9900
    for name, text in {
            "a rule of a table": "a|b\n|" + "-" * 400_000 + "x", "cells": "a|b\n-|-\n" + "|" * 400_000,
            "a heading": "#" + spaces + "x\u2028", "a list": "-" + spaces + "x\u2028", "a task": "- [x]" + spaces + "x\u2028",
            "formulas": ("\\({" * 1300 + "\\)") * 100, "addresses": ("https://" + "." * 1990 + "x ") * 5000,
            "code": f"```c\n{quotes}\n```\n" * 200}.items():
        check(browser.run("return markdown(arguments[0]).length", text) >= 1, f"long: {name}")


def formulas(browser):
    def made(text):
        return browser.run("return markdown(arguments[0]).map((one) => one.outerHTML).join('')", text)

    check("<msup><mi>e</mi><mrow><mi>i</mi><mi>π</mi></mrow></msup>" in made("so $e^{i\\pi}$."), "powers")
    check("<mfrac><msub><mi>a</mi><mi>n</mi></msub><mn>2</mn></mfrac>" in made("\\(\\frac{a_n}{2}\\)"), "fractions")
    check('<math display="block">' in made("\\[\nx\n\\]") and "munderover" in made("$$\\sum_{k=1}^n k$$"),
          "formulas on lines of their own")
    matrix = made("$$\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}$$")
    check(matrix.count("<mtr>") == 2 and matrix.count("<mtd>") == 4, "matrices")
    check("<math" not in made("between $5 and $7, or `$x$`"), "prices and code are none")
    check("\\nosuch" in made("$\\nosuch{x}$"), "what is not known is shown as it is")
    check("<img" not in made("$</math><img src=x onerror=window.hacked=1>$"), "no text becomes markup")
    check(made("$" + "{" * 3000 + "$").count("<math") == 0, "too deep a formula is text")
    for name in ("constructor", "toString", "__proto__"):
        check("<mtd><mi>x</mi></mtd>" in made(f"$\\begin{{{name}}}x\\end{{{name}}}$"), f"an environment {name}")
        check("native code" not in made(f"$\\{name} \\left\\{name} x \\right)\\mathbb{{{name}}}$"), f"a command {name}")
    failing = "const {read} = Formula.prototype; Formula.prototype.read = () => null.read;"
    check(browser.run(failing + "const made = formula('x', false); Formula.prototype.read = read; return made") is None,
          "a formula that fails is text")
    for text in ("$a ", "\\(", "$$", "$\\frac{", "\\[ "):
        check(browser.run("return markdown(arguments[0].repeat(16000)).length", text) >= 1, f"16,000 times {text!r}")


def keep(browser, url):
    """Nothing is lost: in two tabs, with a full store, by a reload in the middle of a reply."""
    first = browser.command("GET", "/window")
    mine = browser.run("return state.current.messages.map((message) => message.content)")
    second = browser.command("POST", "/window/new", {"type": "tab"})["handle"]
    browser.command("POST", "/window", {"handle": second})
    browser.open(url)
    browser.wait("document.getElementById('model').textContent == 'storyteller'", "a second tab")
    browser.keys("From the second tab." + ENTER)
    browser.wait(REPLIED % 1, "it has its reply")
    browser.command("POST", "/window", {"handle": first})
    browser.keys("From the first tab." + ENTER)
    browser.wait("!isRunning()", "the first tab has one too")
    kept = browser.run("return readConversations().flatMap(c => c.messages.map(m => m.content)).join('|')")
    check("From the second tab." in kept and "From the first tab." in kept and mine[0] in kept, "both are kept")
    # The same conversation, changed in both.
    browser.run("const c = JSON.parse(localStorage.getItem('leq.chat.' + state.current.id)); c.revision = 'other';"
                "c.messages.push({role: 'user', content: 'Only in the other.'});"
                "localStorage.setItem('leq.chat.' + c.id, JSON.stringify(c));"
                "state.current.messages.push({role: 'user', content: 'Only in this.'}); save();")
    kept = browser.run("return readConversations().map(c => c.messages.at(-1).content)")
    check("Only in the other." in kept and "Only in this." in kept, "two versions of one conversation are both kept")
    browser.run("Storage.prototype.setItem = () => { throw new Error('full'); }; save();")
    check("storage is full" in browser.run("return $('notice').innerText") and
          browser.run("return $('notice').offsetHeight") > 10, "a full store is told where it is seen")
    browser.command("POST", "/refresh", {})
    browser.wait("document.getElementById('model').textContent == 'storyteller'", "a new page")
    browser.run("state.settings = {max_tokens: 4000}; document.getElementById('new').click()")
    browser.keys("Something long." + ENTER)
    browser.wait("state.current.messages.at(-1).content.length > 30", "a reply in work")
    browser.command("POST", "/refresh", {})
    browser.wait("document.querySelectorAll('article').length == 2", "is kept by a reload")
    check(len(texts(browser)[1]) > 10, "as far as it was")
    browser.run("$('search').value = 'second tab'; showList()")
    check(browser.run("return document.querySelectorAll('#conversations li').length") == 1, "search")
    browser.run("$('search').value = ''; showList()")
    count = browser.run("const n = state.conversations.length; importText(JSON.stringify({leq: 1, conversations:"
                        " [{id: 'x', messages: [{role: 'user', content: 'Imported.'}]}]})); return state.conversations.length - n")
    check(count == 1, "import")
    say = {"role": "user", "content": "Sound."}
    damaged = [None, "text", {"messages": [None]}, {"messages": {}}, {"messages": [{"role": "user"}]},
               *({"messages": [say | more]} for more in (
                   {"content": [{"type": "text", "text": "x"}]}, {"role": 1}, {"thoughts": 1}, {"stats": {"toString": 1}},
                   {"failure": {}}, {"place": {}}, {"alternatives": None}, {"alternatives": [[]]},
                   {"alternatives": [[say | {"alternatives": [[None]]}]]})),
               {"messages": [say], "title": ["x"]}]
    sound = {"messages": [say | {"alternatives": [[say]], "place": 1}], "title": "Sound"}
    count = browser.run("const n = state.conversations.length; importText(arguments[0]); return state.conversations.length - n",
                        json.dumps({"conversations": [*damaged, sound]}))
    left_out = browser.run("return $('notice').innerText")
    check(count == 1 and f"left out: {len(damaged)}" in left_out, f"what is damaged is not imported: {count}, {left_out}")
    browser.run("arguments[0].forEach((one, i) => localStorage.setItem('leq.chat.bad' + i, JSON.stringify(one)));"
                "takeFromOtherTab({key: 'leq.chat.bad2'})", damaged)
    browser.command("POST", "/refresh", {})
    browser.wait("document.getElementById('model')?.textContent == 'storyteller'", "a page with a damaged store starts")
    left_out = browser.run("return $('notice').innerText")
    check(f"left out: {len(damaged)}" in left_out, f"and says what it does not show: {left_out}")
    browser.run("arguments[0].forEach((one, i) => localStorage.removeItem('leq.chat.bad' + i))", damaged)


def leave(browser):
    """A reply goes on while another conversation is open, and there is one in each."""
    browser.run("state.settings = {max_tokens: 300}; document.getElementById('new').click()")
    browser.keys("A long one." + ENTER)
    browser.wait("state.current.messages.at(-1).content.length > 20", "a reply begins")
    browser.run("window.left = state.current; document.getElementById('new').click()")
    check(browser.run("return $('stop').hidden"), "another conversation can be written to")
    browser.keys("A second one." + ENTER)
    browser.wait("state.running.size == 0", "both end")
    browser.run("openConversation(left)")
    check(texts(browser)[0] == "A long one." and len(texts(browser)[1]) > 100, "the left reply went on")
    replies = browser.run("return readConversations().slice(0, 2).map(c => c.messages.map(m => m.content))")
    check(sorted(one[0] for one in replies) == ["A long one.", "A second one."] and
          all(len(one) == 2 and len(one[1]) > 100 for one in replies), "both are kept")
    check(browser.run("return $('stop').hidden && !$('send').hidden"), "the next message can be sent")


def stop(browser):
    browser.run("document.getElementById('input').value = 'Stop me.';"
                "document.getElementById('send').click(); document.getElementById('stop').click();")
    browser.wait("document.getElementById('stop').hidden", "stopped")
    check(texts(browser)[-1] == "Stop me.", "and nothing was added")


def escape(browser):
    browser.run("state.current.messages = [{role: 'user', content: arguments[0]},"
                "{role: 'assistant', content: arguments[0], thoughts: arguments[0]}]; showAll();", HOSTILE)
    counts = browser.run(
        "const n = (s) => document.querySelectorAll('article.assistant ' + s).length;"
        "return [window.hacked || 0, document.querySelectorAll('#messages img, #messages script').length,"
        " n('.body > h2'), n('.body > ul > li'), n('.body > ul ol li'), n('.body > .table td'),"
        " n('.body > pre code'), n('.body strong') > 0, n('.body em') > 0, n('details')]")
    check(counts == [0, 0, 1, 2, 1, 2, 1, True, True, 1], f"markdown as nodes, no markup: {counts}")
    links = browser.run("return [...document.querySelectorAll('article.assistant .body > p a')].map(a => a.href + ' ' + a.rel)")
    check(links == ["https://example.org/x noopener noreferrer nofollow"], f"only safe links: {links}")


def reach(browser):
    nameless = browser.run("""
        const named = (e) => e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length;
        return [...document.querySelectorAll('button, input, textarea, a')].filter(e => !named(e)).map(e => e.outerHTML)""")
    check(nameless == [], f"everything has a name: {nameless}")
    browser.chord("\ue00a", "n")
    browser.wait("document.activeElement.id == 'input' && document.querySelectorAll('article').length == 0",
                 "Alt+N begins a conversation")
    browser.click("#settings-button")
    browser.wait("document.getElementById('settings').open", "settings open")
    browser.press(ESCAPE)
    browser.wait("!document.getElementById('settings').open", "Escape closes them")
    browser.run("document.getElementById('settings-button').click();"
                "document.querySelector('[name=top_k]').value = '7';"
                "document.querySelector('dialog button.primary').click()")
    browser.wait("kept.read('settings', {}).top_k == 7", "settings are kept")


def look(browser, shots):
    browser.click("#conversations li:last-child .open")
    background = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(background)
    browser.click("#theme")
    check(browser.run(background) != light, "dark is another colour")
    browser.shoot(shots, "dark")
    browser.size(390, 844)
    check(browser.run("return document.documentElement.scrollWidth <= innerWidth"), "it fits a phone")
    hidden = "getComputedStyle(document.getElementById('sidebar')).visibility == 'hidden'"
    browser.wait(hidden, "no sidebar on a phone")
    browser.shoot(shots, "phone")
    broken = browser.run("""
        fill(document.querySelector('#messages'), markdown('|quantization|of weights|and of activations|\\n|-|-|-|\\n|a|b|c|'));
        return [...document.querySelectorAll('#messages th')].map(c => [c.firstChild, document.createRange()])
            .map(([text, range]) => { range.setStart(text, 0); range.setEnd(text, text.data.search(/ |$/)); return range.getClientRects().length; })""")
    check(set(broken[-3:]) == {1}, f"tables scroll and break no word: {broken}")
    browser.click("#settings-button")
    save = browser.run("const b = document.querySelector('#settings .primary').getBoundingClientRect(); return [b.top, b.bottom, innerHeight]")
    check(0 < save[0] and save[1] <= save[2], f"Save is on the screen: {save}")
    browser.shoot(shots, "phone-settings")
    browser.press(ESCAPE)
    browser.click("#menu")
    browser.wait("!(" + hidden + ")", "a menu in its place")
    browser.shoot(shots, "phone-menu")
    browser.click("#theme")
    browser.press(ESCAPE)


def locked(tools):
    with Served(tools, "--api-key", "sesame") as served:
        browser = Browser()
        try:
            browser.open(served.url)
            browser.wait("document.getElementById('settings').open", "a key is asked for")
            browser.keys("sesame", "[name=key]")
            browser.click("dialog button.primary")
            browser.wait("document.getElementById('model').textContent == 'storyteller'", "and taken")
        finally:
            browser.close()


def choose(tools, shots):
    """Two models: the choice is in the heading, is sent, and is kept."""
    with tempfile.TemporaryDirectory(prefix="leq-page-") as folder, Served(tools) as one:
        shutil.copy(one.model[1], pathlib.Path(folder) / "second.leq")
        with Served(tools, "--models-dir", folder, "-n", "8") as served:
            browser = Browser()
            try:
                browser.open(served.url)
                names = "[...document.querySelectorAll('#models option')].map((o) => o.value).join()"
                browser.wait(names + " == 'storyteller,second'", "a choice of models")
                browser.run("const all = document.getElementById('models'); all.value = 'second';"
                            "all.dispatchEvent(new Event('change'));")
                browser.keys("Once")
                browser.click("#send")
                browser.wait("document.querySelector('article:not(.user) .body')?.textContent.length > 3",
                             "a reply")
                metrics = urllib.request.urlopen(served.url + "/metrics").read().decode()
                check('leq:requests_total{model="second"} 1' in metrics, "by the chosen model")
                browser.shoot(shots, "models")
                browser.open(served.url)
                browser.wait("document.getElementById('models').value == 'second'", "the choice is kept")
            finally:
                browser.close()


def without_storage(tools, shots):
    """Where the browser refuses site data, the page works and says that it keeps nothing."""
    with Served(tools, "-n", "8") as served:
        browser = Browser(**{"profile.default_content_setting_values.cookies": 2})
        try:
            browser.open(served.url)
            refused = browser.run("try { return localStorage.length; } catch (error) { return error.name; }")
            check(refused == "SecurityError", f"the browser refuses storage: {refused}")
            browser.wait("document.getElementById('model').textContent == 'storyteller'", "the page starts")
            check("conversations end with it" in browser.run("return $('notice').innerText"), "it says so")
            browser.keys("Once" + ENTER)
            browser.wait(REPLIED % 1, "a reply without storage")
            browser.click("#new")
            browser.wait("document.querySelectorAll('article').length == 0", "a new conversation")
            check(browser.run("return state.conversations.length") == 2, "both are in the list")
            browser.shoot(shots, "without-storage")
        finally:
            browser.close()


def another_origin(tools):
    """A page of another origin sends a chat with a key, as OpenAI's JavaScript client does."""
    page = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    fetch = """
        const [url, done] = arguments;
        fetch(url + '/v1/chat/completions', {method: 'POST',
            headers: {'Content-Type': 'application/json', Authorization: 'Bearer sesame', 'X-Stainless-Lang': 'js'},
            body: JSON.stringify({messages: [{role: 'user', content: 'Once'}], max_tokens: 4, response_format:
              {type: 'json_schema', json_schema: {name: 'a', schema: {type: 'array', items: {type: 'integer'}, uniqueItems: true}}}})})
          .then(async (r) => done([r.status, (await r.json()).object, r.headers.get('X-Leq-Warnings') !== null]))
          .catch((error) => done(String(error)))"""
    own = f"http://localhost:{page.server_port}"
    for flags, expected in ((("--cors-origin", "*"), [200, "chat.completion", True]),
                            (("--cors-origin", own), [200, "chat.completion", True]),
                            ((), "TypeError: Failed to fetch")):
        with Served(tools, "--api-key", "sesame", *flags) as served:
            browser = Browser()
            try:
                browser.open(own + "/nothing")
                found = browser.command("POST", "/execute/async", {"script": fetch, "args": [served.url]})
                check(found == expected, f"another origin with {flags}: {found}")
            finally:
                browser.close()
    page.shutdown()


def main():
    tools, shots = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            skip(f"{program} is not installed: apt install chromium chromium-driver")
    with Served(tools, "-n", "120", "-s", "3") as served:
        browser = Browser()
        try:
            browser.size(1200, 800)
            browser.open(served.url)
            converse(browser, shots)
            change(browser)
            details(browser)
            versions(browser)
            leave(browser)
            stop(browser)
            escape(browser)
            marks(browser)
            formulas(browser)
            keep(browser, served.url)
            reach(browser)
            look(browser, shots)
            log = [entry for entry in browser.command("POST", "/se/log", {"type": "browser"})
                   if entry["level"] in ("SEVERE", "WARNING")]
            check(log == [], f"no errors and nothing that the policy refused: {log}")
        finally:
            browser.close()
    locked(tools)
    choose(tools, shots)
    without_storage(tools, shots)
    another_origin(tools)


if __name__ == "__main__":
    main()
