// A worker that has nothing but HTTP: node worker.mjs URL[,URL...] [SLOTS], its token in CARILLON_TOKEN.
import { hostname } from "node:os";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const nodes = process.argv[2].split(","), slots = Number(process.argv[3] ?? 4);
const headers = { "Content-Type": "application/json", Authorization: "Bearer " + (process.env.CARILLON_TOKEN ?? "") };
const me = { name: "node." + hostname(), start: randomBytes(8).toString("hex"), app: "pull", slots, pid: process.pid,
  jobs: [{ key: "greet", kind: "triggered", settings: { retries: 2 } }] };
const worker = me.name + "-" + me.start, mine = new Map(); // run/attempt -> stop
let leaving = false;
async function send(verb, body) { // until a node responds
  for (;; await sleep(200)) {
    let node = nodes[0], answer, reply;
    try {
      answer = await fetch(`${node}/api/v1/worker/${verb}`, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(10_000) });
      reply = JSON.parse((await answer.text()) || "{}");
    } catch { // this node is gone: the next one
      nodes.sort((a, b) => (a === node) - (b === node));
      continue;
    }
    if (answer.ok) return reply;
    if (reply.code === "unknown_worker") await register(); // of a node that was started anew, or another one
    else if (![429, 502, 503, 504].includes(answer.status)) throw new Error(`${verb}: ${answer.status} ${reply.code}`);
  }
}
async function register() {
  const runs = [...mine.keys()].map((key) => ({ run: key.split("/")[0], attempt: Number(key.split("/")[1]) }));
  heed(await send("register", { ...me, runs }));
}
function heed(answer) { for (const s of answer.stop) mine.get(s.run + "/" + s.attempt)?.abort(); }

async function greet(args, of, signal) {
  await send("logs", { ...of, first: 1, lines: [{ text: "greeting " + args.name }] });
  if (args.failFirst && of.attempt === 1) return { error: "not in the mood", code: "mood" };
  await sleep((args.seconds ?? 0) * 1000, null, { signal });
  return { result: "hello " + args.name };
}

async function work({ run, attempt, args }, key, signal) {
  const of = { worker, run, attempt };
  const end = await greet(args, of, signal).catch((e) => ({ error: String(e) }));
  await send("finish", { ...of, ...end }).catch(console.error); // lease_lost: another worker has the run
  mine.delete(key);
}
process.on("SIGTERM", () => (leaving = true));
await register();
const heartbeats = setInterval(() => send("heartbeat", { worker, drain: leaving }).then(heed, console.error), 3000);
for (let got = ""; !leaving || mine.size > 0; ) { // a full one waits, and so does one that leaves
  if (leaving || mine.size === slots) { await sleep(5); continue; }
  const answer = await send("poll", { worker, want: slots - mine.size, got, waitSeconds: 2 });
  got = answer.batch ?? "";
  heed(answer);
  for (const r of answer.runs) {
    const key = r.run + "/" + r.attempt, stop = new AbortController();
    if (!mine.has(key)) { mine.set(key, stop); work(r, key, stop.signal); }
  }
}
clearInterval(heartbeats);
await send("leave", { worker });
