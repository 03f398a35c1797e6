// The stock `openai` client of node against /openai/v1: node openai.mjs URL TOKEN
import assert from "node:assert/strict";
import OpenAI from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 1 });
const ask = [{ role: "user", content: "Hello" }];
const paint = {
  name: "paint",
  description: "Paint the page",
  parameters: { type: "object", properties: { colour: { type: "string" } } },
};

const models = [];
for await (const one of client.models.list()) models.push(one.id);
assert(models.includes("talker"));
console.log("models");

const chat = await client.chat.completions.create({ model: "talker", messages: ask });
assert.equal(chat.choices[0].message.content, "It is so.");
console.log("chat");

let text = "";
let usage = null;
const stream = await client.chat.completions.create({
  model: "talker",
  messages: ask,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, "It is so.");
assert(usage.total_tokens >= 0);
console.log("chat stream with usage");

const first = await client.responses.create({ model: "talker", input: "Hello" });
assert.equal(first.output_text, "It is so.");
const more = await client.responses.create({
  model: "talker",
  input: "And?",
  previous_response_id: first.id,
});
assert.equal(more.status, "completed");
console.log("responses");

const events = [];
const streamed = await client.responses.create({ model: "talker", input: "Hello", stream: true });
for await (const event of streamed) events.push(event.type);
assert.equal(events[0], "response.created");
assert.equal(events.at(-1), "response.completed");
console.log("responses stream");

const called = await client.chat.completions.create({
  model: "painter",
  messages: ask,
  tools: [{ type: "function", function: paint }],
});
const [call] = called.choices[0].message.tool_calls;
assert.equal(call.function.name, "paint");
const painted = await client.chat.completions.create({
  model: "painter",
  messages: [
    ...ask,
    called.choices[0].message,
    { role: "tool", tool_call_id: call.id, content: "It is red." },
  ],
  tools: [{ type: "function", function: paint }],
});
assert.equal(painted.choices[0].message.content, "Painted.");
console.log("tools");

await assert.rejects(
  client.chat.completions.create({ model: "nobody", messages: ask }),
  (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found",
);
const wrong = new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 });
await assert.rejects(wrong.models.list(), OpenAI.AuthenticationError);
console.log("errors");

let tries = 0;
const flaky = new OpenAI({
  baseURL,
  apiKey,
  maxRetries: 2,
  fetch: async (...given) => {
    tries += 1;
    if (tries === 1) throw new TypeError("fetch failed");
    return fetch(...given);
  },
});
const again = await flaky.chat.completions.create({ model: "talker", messages: ask });
assert.equal(again.choices[0].message.content, "It is so.");
assert.equal(tries, 2);
console.log("retries");
