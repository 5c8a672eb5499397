// The live panel: what the engine does and holds.

import { get } from "./api.js";

const byId = (id) => document.getElementById(id);
let before = null;

export function watch() {
  const look = async () => {
    if (!document.hidden) {
      try {
        show(await get("v1/engine"));
      } catch {
        byId("running").textContent = "no answer";
        before = null;
      }
    }
    setTimeout(look, 1000);
  };
  look();
}

function show(now) {
  const time = performance.now();
  byId("running").textContent = now.running;
  byId("waiting").textContent = now.waiting;
  if (before) {
    const rate = (1000 * (now.computed_tokens - before.tokens)) / (time - before.time);
    byId("rate").textContent = rate.toFixed(rate < 10 ? 1 : 0);
  }
  before = { tokens: now.computed_tokens, time };
  const share = now.prompt_tokens ? Math.round((100 * now.cached_tokens) / now.prompt_tokens) : 0;
  byId("hits").textContent = `${now.cached_tokens} of ${now.prompt_tokens} (${share} %)`;
  byId("drafts").textContent = now.drafted_tokens
    ? `${now.kept_tokens} of ${now.drafted_tokens} kept, ${now.mean_accepted_length.toFixed(1)} tokens a pass`
    : "none";
  byId("drafts").title = now.acceptance.map((part, place) => `draft ${place + 1}: ${Math.round(100 * part)} %`).join(", ");
  pool("blocks", now.blocks);
  pool("slots", now.slots);
  byId("recent").replaceChildren(...now.recent.slice(0, 8).map(request));
  byId("thinking-label").hidden = !now.can_switch_thinking;
}

function pool(name, use) {
  byId(name).value = use.num_used / use.num_total;
  byId(`${name}-text`).textContent = `${use.num_used} of ${use.num_total}, ${use.num_cached} cached`;
}

function request(each) {
  const item = document.createElement("li");
  const rate = each.per_token_s ? `, ${(1 / each.per_token_s).toFixed(1)} tokens/s` : "";
  item.textContent = `${each.prompt_tokens} + ${each.generated} tokens, ${each.cached_tokens} cached${rate}`;
  if (each.cache_miss) item.append(document.createElement("br"), each.cache_miss);
  return item;
}
