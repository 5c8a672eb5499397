// The conversation: what was said, what is being said, and the keys that steer it.

import { get, stream } from "./api.js";
import { watch } from "./engine.js";
import { render } from "./markdown.js";

const byId = (id) => document.getElementById(id);
const SAVED = ["system", "temperature", "top_p", "max_tokens", "seed", "tools", "tool_choice"];
let model = "";
let messages = [];
let answering = null;

for (const id of SAVED) {
  byId(id).value = localStorage.getItem(`thalweg.${id}`) ?? byId(id).value;
  byId(id).addEventListener("change", () => localStorage.setItem(`thalweg.${id}`, byId(id).value));
}

async function start() {
  try {
    model = (await get("v1/models")).data[0].id;
    byId("model").textContent = model;
  } catch (error) {
    byId("model").textContent = error.message;
  }
}

function options() {
  const body = { model, messages: [...messages] };
  const system = byId("system").value.trim();
  if (system) body.messages.unshift({ role: "system", content: system });
  for (const id of ["temperature", "top_p", "max_tokens", "seed"]) {
    if (byId(id).value) body[id] = Number(byId(id).value);
  }
  if (byId("tools").value.trim()) {
    body.tools = JSON.parse(byId("tools").value);
    body.tool_choice = byId("tool_choice").value;
  }
  if (!byId("thinking-label").hidden) body.enable_thinking = byId("thinking").checked;
  return body;
}

async function answer() {
  const view = new AnswerView();
  const message = { role: "assistant", content: "" };
  answering = new AbortController();
  setBusy(true);
  try {
    if (!model) await start();
    for await (const chunk of stream(options(), answering.signal)) {
      const choice = chunk.choices[0];
      if (choice) take(message, choice.delta);
      view.show(message, choice?.finish_reason, chunk);
    }
  } catch (error) {
    if (error.name === "AbortError") view.note("stopped");
    else view.fail(error.message);
  }
  if (message.content || message.tool_calls || message.reasoning_content) messages.push(message);
  answering = null;
  setBusy(false);
  view.finish();
}

function take(message, delta) {
  message.content += delta.content ?? "";
  if (delta.reasoning_content) message.reasoning_content = (message.reasoning_content ?? "") + delta.reasoning_content;
  for (const call of delta.tool_calls ?? []) {
    message.tool_calls ??= [];
    const known = message.tool_calls[call.index];
    if (known) known.function.arguments += call.function.arguments;
    else message.tool_calls[call.index] = { id: call.id, type: "function", function: { ...call.function } };
  }
}

class AnswerView {
  constructor() {
    for (const old of document.querySelectorAll(".retry")) old.remove();
    this.node = item("assistant");
    this.thinking = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "Thinking";
    this.thought = element("div", "thought");
    this.thinking.append(summary, this.thought);
    this.thinking.hidden = true;
    this.content = element("div", "content");
    this.calls = element("div", "calls");
    this.about = element("div", "about");
    this.node.append(this.thinking, this.content, this.calls, this.about);
  }

  show(message, reason, chunk) {
    const list = byId("messages");
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    this.thinking.hidden = !message.reasoning_content;
    this.thought.textContent = message.reasoning_content ?? "";
    this.content.replaceChildren(render(message.content));
    this.calls.replaceChildren(...(message.tool_calls ?? []).map((call) => callView(call)));
    if (reason) this.reason = reason;
    if (chunk.usage) {
      const { usage, timings } = chunk;
      const rate = timings.per_token_s ? `, ${(1 / timings.per_token_s).toFixed(1)} tokens/s` : "";
      this.note(`${this.reason}: ${usage.completion_tokens} tokens${rate}, ${timings.cached_tokens} of ${usage.prompt_tokens} cached`);
    }
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  note(text) {
    this.about.textContent = text;
  }

  fail(text) {
    this.content.append(element("p", "error message", text));
  }

  finish() {
    for (const call of messages.at(-1)?.tool_calls ?? []) this.calls.append(resultForm(call, this.calls));
    const retry = element("button", "retry", "Retry");
    retry.type = "button";
    retry.addEventListener("click", () => retryFrom(this.node));
    this.about.append(retry);
  }
}

function callView(call) {
  const node = element("div", "call");
  node.append(element("strong", "", call.function.name), " ", element("code", "", call.function.arguments));
  return node;
}

// The user plays the tool; when all calls have a result the model goes on.
function resultForm(call, calls) {
  const form = document.createElement("form");
  const input = document.createElement("input");
  input.placeholder = `Result of ${call.function.name}`;
  form.append(input, element("button", "", "Give"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    messages.push({ role: "tool", tool_call_id: call.id, content: input.value });
    form.replaceWith(element("div", "thought", `→ ${input.value}`));
    if (!calls.querySelector("form")) answer();
  });
  return form;
}

function retryFrom(node) {
  if (answering) return;
  const last = messages.findLastIndex((message) => message.role === "user");
  messages.length = last + 1;
  const shown = [...byId("messages").children];
  const user = shown.findLastIndex((each) => each.classList.contains("user"));
  for (const each of shown.slice(user + 1)) each.remove();
  answer();
}

function send() {
  const text = byId("input").value.trim();
  if (!text || answering) return;
  byId("input").value = "";
  messages.push({ role: "user", content: text });
  item("user").textContent = text;
  answer();
}

function item(kind) {
  const node = element("li", `message ${kind}`);
  byId("messages").append(node);
  node.scrollIntoView({ block: "end" });
  return node;
}

function element(tag, kind, text = "") {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  node.textContent = text;
  return node;
}

function setBusy(busy) {
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
}

function toggle(button, shown) {
  button.setAttribute("aria-expanded", String(shown));
}

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
byId("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") answering?.abort();
});
byId("stop").addEventListener("click", () => answering?.abort());
byId("new").addEventListener("click", () => {
  answering?.abort();
  messages = [];
  byId("messages").replaceChildren();
  byId("input").focus();
});
byId("show-settings").addEventListener("click", (event) => {
  byId("settings").hidden = !byId("settings").hidden;
  toggle(event.currentTarget, !byId("settings").hidden);
});
byId("show-engine").addEventListener("click", (event) => {
  toggle(event.currentTarget, byId("engine").classList.toggle("open"));
});
byId("key").addEventListener("change", start);
start();
watch();
