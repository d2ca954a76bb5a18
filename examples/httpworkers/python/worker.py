"""A worker that has nothing but HTTP: python3 worker.py URL[,URL...] [SLOTS], its token in CARILLON_TOKEN."""
import http.client, json, os, signal, socket, sys, threading, time, urllib.error, urllib.request, uuid

nodes, slots = sys.argv[1].split(","), int(sys.argv[2]) if len(sys.argv) > 2 else 4
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("CARILLON_TOKEN", "")}
me = {"name": "py." + socket.gethostname(), "start": uuid.uuid4().hex, "app": "pull", "slots": slots, "pid": os.getpid(),
      "jobs": [{"key": "greet", "kind": "triggered", "settings": {"retries": 2}}]}
worker, mine, leaving, got = me["name"] + "-" + me["start"], {}, threading.Event(), ""  # mine: (run, attempt) -> stop

def send(verb, **body):  # until a node responds
    while True:
        node, raw = nodes[0], json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{node}/api/v1/worker/{verb}", raw, headers), timeout=10) as answer:
                return json.loads(answer.read() or "{}")
        except urllib.error.HTTPError as e:
            code = e.code if e.code in (429, 502, 503, 504) else json.load(e).get("code")
            if code == "unknown_worker":  # of a node that was started anew, or another one
                register()
            elif code != e.code:
                raise RuntimeError(f"{verb}: {e.code} {code}")
        except (OSError, http.client.HTTPException):  # this node is gone: the next one
            nodes[:] = sorted(nodes, key=lambda other: other == node)
        time.sleep(0.2)
def register():
    heed(send("register", **me, runs=[{"run": r, "attempt": a} for r, a in list(mine)]))
def heed(answer):
    for s in answer["stop"]:
        mine.get((s["run"], s["attempt"]), threading.Event()).set()
def greet(args, of, stop):
    send("logs", **of, first=1, lines=[{"text": "greeting " + args["name"]}])
    if args.get("failFirst") and of["attempt"] == 1:
        return {"error": "not in the mood", "code": "mood"}
    return {"error": "stopped"} if stop.wait(args.get("seconds", 0)) else {"result": "hello " + args["name"]}
def work(run, key, stop):
    of = {"worker": worker, "run": run["run"], "attempt": run["attempt"]}
    try:
        send("finish", **of, **greet(run["args"], of, stop))
    finally:  # an error is lease_lost: another worker has the run
        del mine[key]
def heartbeat():
    while not leaving.wait(3) or mine:
        heed(send("heartbeat", worker=worker, drain=leaving.is_set()))

signal.signal(signal.SIGTERM, lambda *_: leaving.set())
register()
threading.Thread(target=heartbeat, daemon=True).start()
while not leaving.is_set() or mine:  # a full one waits, and so does one that leaves
    if leaving.is_set() or len(mine) == slots:
        time.sleep(0.01)
        continue
    answer = send("poll", worker=worker, want=slots - len(mine), got=got, waitSeconds=2)
    got = answer.get("batch", "")
    heed(answer)
    for run in answer["runs"]:
        key = run["run"], run["attempt"]
        if key not in mine:
            mine[key] = threading.Event()
            threading.Thread(target=work, args=(run, key, mine[key])).start()
send("leave", worker=worker)
