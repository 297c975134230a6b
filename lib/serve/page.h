// The page that a browser sees: a prompt, and the text that follows it as it comes.
#pragma once

namespace neox {

inline constexpr const char* kPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>neox-serve</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em; }
textarea { width: 100%; box-sizing: border-box; font: inherit; }
label { margin-right: 1em; white-space: nowrap; } input { width: 5em; font: inherit; }
#text { white-space: pre-wrap; margin-top: 1em; } #new { background: #e8f0fe; } #error { color: #b00020; }
</style></head><body>
<h1>neox-serve</h1><p id="model"></p>
<textarea id="prompt" rows="5" placeholder="Once upon a time"></textarea>
<p><label>tokens <input id="tokens" type="number" value="100" min="1"></label>
<label>temperature <input id="temperature" type="number" value="0.8" min="0" step="0.1"></label>
<label>top-p <input id="top_p" type="number" value="0.95" min="0" max="1" step="0.05"></label>
<button id="go">Generate</button> <button id="stop" disabled>Stop</button></p>
<div id="text"><span id="old"></span><span id="new"></span></div><p id="error"></p>
<script>
const at = id => document.getElementById(id);
let key = "", running = null;
async function ask(path, options) {
  for (;;) {
    const headers = {"Content-Type": "application/json"};
    if (key) headers.Authorization = "Bearer " + key;
    const answer = await fetch(path, {...options, headers});
    if (answer.status !== 401) return answer;
    key = window.prompt("The key of this server");
    if (!key) throw new Error("this server wants a key");
  }
}
async function show() {
  const models = await (await ask("v1/models")).json();
  at("model").textContent = models.data.map(m => m.id + ", " + m.max_model_len + " positions").join();
}
async function go() {
  running = new AbortController();
  at("go").disabled = true; at("stop").disabled = false;
  at("old").textContent = at("prompt").value; at("new").textContent = at("error").textContent = "";
  try {
    const body = JSON.stringify({prompt: at("prompt").value, stream: true, max_tokens: +at("tokens").value,
      temperature: +at("temperature").value, top_p: +at("top_p").value});
    const answer = await ask("v1/completions", {method: "POST", body, signal: running.signal});
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "";;) {
      const {done, value} = await reader.read();
      if (done) break;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        if (event === "data: [DONE]") continue;
        const {error, choices} = JSON.parse(event.slice(6));
        if (error) throw new Error(error.message);
        at("new").textContent += choices[0].text;
      }
    }
  } catch (e) { if (e.name !== "AbortError") at("error").textContent = e.message; }
  at("go").disabled = false; at("stop").disabled = true;
}
at("go").onclick = go;
at("stop").onclick = () => running.abort();
at("prompt").onkeydown = e => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) go(); };
show().catch(e => at("error").textContent = e.message);
</script></body></html>
)html";

}  // namespace neox
