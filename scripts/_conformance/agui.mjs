// A whole conversation of @ag-ui/client with an interrupt: node agui.mjs URL TOKEN
import { HttpAgent } from "@ag-ui/client";

const [url, token] = process.argv.slice(2);
const agent = new HttpAgent({
  url,
  headers: { Authorization: `Bearer ${token}` },
  threadId: "thread-1",
});
let outcome = null;
const watcher = {
  onEvent: ({ event }) => {
    if (event.type === "RUN_FINISHED") outcome = event.outcome;
    if (event.type === "RUN_ERROR") console.log("error:", event.message);
  },
};
agent.addMessage({ id: "1", role: "user", content: "Erase the disk." });
await agent.runAgent({}, watcher);
for (const one of outcome?.interrupts ?? []) console.log("interrupt:", one.reason, one.message);
const resume = (outcome?.interrupts ?? []).map((one) => ({
  interruptId: one.id,
  status: "resolved",
  payload: { approved: true },
}));
await agent.runAgent({ resume }, watcher);
console.log("outcome:", outcome?.type);
for (const message of agent.messages) console.log(message.role, JSON.stringify(message.content));
