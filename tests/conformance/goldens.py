#!/usr/bin/env python3
"""Writes down what the reference player's own functions answer, for the tests of the project's player.

  goldens.py testkit/tests/fixtures/player_goldens.json      needs PyYAML only; run again whenever play.py, steps.py or a scenario changes

The file holds, per scenario, a digest of how it is read and expanded, and for many inputs what play.py's norm, diff, collect,
Driver.rule and Run.ok answer. The project's player must answer the same (testkit/src/player/goldens.rs).
"""
import asyncio, glob, json, os, random, sys, types, yaml

HERE = os.path.dirname(os.path.abspath(__file__))


class Anything:
    """stands for the modules that the functions called here do not need"""
    def __getattr__(self, name): return type(name, (Exception,), {})


for name in ("aiohttp", "grpc", "csi_pb2", "csi_pb2_grpc", "google.protobuf.json_format"): sys.modules[name] = Anything()
for name in ("google", "google.protobuf"): sys.modules[name] = types.ModuleType(name)
sys.path.insert(0, HERE); sys.dont_write_bytecode = True
player = {"__name__": "play"}
exec(open(os.path.join(HERE, "play.py")).read().replace("\nasyncio.run(main())", ""), player)
from steps import expand

UIDS = [["0c1d2e3f-1111-4222-8333-944445555666", "<uid:PersistentVolumeClaim:a>"], ["0c1d2eff-aaaa-4bbb-8ccc-dddddddddddd", "<uid:PersistentVolumeClaim:b>"], ["12345678-90ab-4cde-8f01-234567890abc", "<uid:Node:n-1>"]]
SOCK = "/tmp/record-18081.sock"


def fnv(text):
    h = 0xCBF29CE484222325
    for b in text.encode(): h = ((h ^ b) * 0x100000001B3) % 2**64
    return f"{h:016x}"


def notes(steps):
    """the notes' titles, as RunMore.note makes them"""
    return [n.get("say") or " ".join(f"{k} {'.'.join(map(str, v)) if isinstance(v, list) else v}" for k, v in n.items()) for n in (s["note"] for s in steps if "note" in s)]


def scenarios():
    out = {}
    for path in sorted(glob.glob(os.path.join(HERE, "**", "*.yaml"), recursive=True)):
        rel = os.path.relpath(path, HERE)
        if rel.split(os.sep)[0] in ("cluster", "differences"): continue
        sc = expand(yaml.safe_load(open(path)))
        out[rel] = {"digest": fnv(json.dumps(sc, sort_keys=True)), "notes": notes(sc["steps"])}
    return out


def run(api=None, **scenario):
    r = object.__new__(player["Run"])
    r.api, r.sc, r.ns, r.p, r.sock, r.problems, r.notes = api, scenario, "sc", None, SOCK, [], []
    r.uids = dict(UIDS)
    return r


def texts(rnd):
    """strings with all that norm looks for, whole, cut short and nearly"""
    u, _ = rnd.choice(UIDS); h = u.replace("-", ""); n = rnd.randint(4, 32)
    return rnd.choice([u, h, f"pvc-{u}", f"pvc-{h[:n]}", f"pvc-{h[:n]}0", f"pvc-{h[:n]}-x", f"x{h[:n]}", u.upper(), h[:6] + " " + u, "1234567890123-4567-drv", "123456789012-4567-drv", "1234567890123-45678-drv", "csisc-ab1z9", "csisc-ab1z99", "csisc-abc", SOCK, f"unix://{SOCK}", "rpc error: code = DeadlineExceeded desc = Deadline Exceeded", "rpc error: code = DeadlineExceeded desc = deadline", "\u00e9\U0001f600\"\\\n", f"pvc-{h[:n]}\u00e9", ""])


def value(rnd, depth=3):
    k = rnd.randint(0, 9)
    if depth and k == 0: return [value(rnd, depth - 1) for _ in range(rnd.randint(0, 4))]
    if depth and k <= 2: return {texts(rnd) or "k": value(rnd, depth - 1) for _ in range(rnd.randint(0, 4))}
    return rnd.choice([None, True, False, rnd.randint(-5, 10**13), 2.5]) if k == 3 else " ".join(texts(rnd) for _ in range(rnd.randint(1, 3)))


def norms(rnd):
    r = run(); out = []
    for _ in range(150):
        x = value(rnd); out.append([x, r.norm(x)])
    return out


def diffs(rnd):
    out = []; small = lambda: rnd.choice([1, 2, 2.0, "a", {"k": 1}, {"k": 1.0}, [1, "x"], None])
    for _ in range(120):
        sides = [{k: rnd.choice([None, "x", 0, 0.0]) if k == "exit" else [small() for _ in range(rnd.randint(0, 3))] for k in player["STABLE"] if rnd.random() < 0.8} for _ in range(2)]
        exp, got = sides if rnd.random() < 0.7 else (sides[0], {**json.loads(json.dumps(sides[0])), **{k: v for k, v in sides[1].items() if rnd.random() < 0.1}})
        if rnd.random() < 0.5: exp["unstable"] = rnd.sample(player["STABLE"], rnd.randint(1, 4))
        out.append([exp, got, player["diff"](exp, got)])
    return out


def rules(rnd):
    """which of the rules each of a row of calls meets"""
    Driver = player["Driver"]; out = []
    for _ in range(100):
        def rule(i):
            r = {"available_capacity": i + 1}; m = {}
            if rnd.random() < 0.4: r["times"] = rnd.randint(0, 2)
            if rnd.random() < 0.3: m["name"] = rnd.choice(["^a", "b$", "a|c", "[^b]"])
            if rnd.random() < 0.3: m["parameters"] = {"p": rnd.choice("xy")}
            if rnd.random() < 0.2: m["topology"] = rnd.choice([{}, {"z": "1"}, {"z": "1", "r": "2"}])
            if m: r["match"] = m
            return r
        d = Driver.__new__(Driver); d.used = {}; d.spec = {"get_capacity": [rule(i) for i in range(rnd.randint(0, 4))]}; calls = []
        for _ in range(8):
            key, params, seg = rnd.choice(["a", "b", "ca"]), rnd.choice([{}, {"p": "x"}, {"p": "y", "q": "x"}]), rnd.choice([{}, {"z": "1"}, {"z": "1", "r": "2"}])
            req = types.SimpleNamespace(parameters=params, accessible_topology=types.SimpleNamespace(segments=seg))
            calls.append([key, params, seg, d.rule("get_capacity", key, req).get("available_capacity", 0)])
        out.append([d.spec, calls])
    return out


def objects(rnd):
    """what a cluster may hold at the end"""
    pick = lambda *a: rnd.choice(a); some = lambda p, **k: k if rnd.random() < p else {}
    uid = lambda: rnd.choice(UIDS)[0]
    def meta(name, ns=None):
        return {"name": name, "uid": uid(), "resourceVersion": str(rnd.randint(1, 99)), **({"namespace": ns} if ns else {}), **some(.4, annotations=pick({"a": texts(rnd)}, {"provisioner.storage.kubernetes.io/open-request": "x"}, {})), **some(.4, finalizers=pick(["f/1"], ["provisioner.storage.kubernetes.io/provisioning-protection"], ["provisioner.storage.kubernetes.io/provisioning-protection", "f/2"])), **some(.3, labels={"l": texts(rnd)}), **some(.2, deletionTimestamp="2026-01-01T00:00:00Z"), **some(.2, ownerReferences=[{"uid": uid()}])}
    exprs = lambda: [{"key": k, "operator": "In", "values": [texts(rnd)]} for k in rnd.sample("zyxab", 3)]
    affinity = lambda: pick({}, None, {"required": None}, {"required": {"nodeSelectorTerms": [{"matchExpressions": exprs()}, {}, {"matchExpressions": exprs()}]}})
    many = lambda f: [f(i) for i in range(rnd.randint(0, 4))]
    return {
        "PersistentVolumeClaim": many(lambda i: {"metadata": {**meta(pick("a", "b", f"c{i}"), pick("sc", "other")), "uid": f"{i}{rnd.randint(1000000, 9999999)}-aaaa-4bbb-8ccc-{rnd.randint(10**11, 10**12 - 1)}"}}),
        "PersistentVolume": many(lambda i: {"metadata": meta(f"pvc-{uid()}{i}"), "spec": {"x": texts(rnd), **some(.6, claimRef={"name": "a", "uid": uid(), "resourceVersion": "7"}), **some(.5, nodeAffinity=affinity())}}),
        "Event": many(lambda i: {"type": pick("Normal", "Warning"), "reason": pick("Provisioning", "LeaderElection"), "message": pick("", "(combined from similar events): ") + texts(rnd), "count": pick(1, 3), "involvedObject": {"kind": "PersistentVolumeClaim", "name": pick("a", "b")}, **some(.8, source=pick({}, {"component": "drv_host_1234"}, {"component": "drv/x"}))}),
        "VolumeSnapshot": many(lambda i: {"metadata": meta(f"s{4 - i}", "sc")}),
        "CSIStorageCapacity": many(lambda i: {"kind": "CSIStorageCapacity", "apiVersion": "v1", "metadata": meta("csisc-ab1z9", "sc"), "capacity": pick("1Gi", "2Gi"), "storageClassName": texts(rnd), **some(.5, nodeTopology={"matchLabels": {"z": pick("1", "\u00e9")}})}),
        "Lease": many(lambda i: {"metadata": meta(f"lease{4 - i}", pick("sc", "kube-system")), "spec": pick({}, {"holderIdentity": "x"}, {"holderIdentity": ""})}),
    }


class Api:
    """lists what it was given, and serves a metrics page"""
    def __init__(self, lists, page=None): self.lists, self.page, self.s = lists, page, self
    async def list(self, kind, ns=None): return json.loads(json.dumps(self.lists.get(kind, [])))
    def get(self, url, headers=None): return self
    async def __aenter__(self): return self
    async def __aexit__(self, *a): pass
    async def text(self): return self.page
    async def req(self, m, path, ok=True):
        kind, name = path.rsplit("/", 2)[-2:]
        for k, items in self.lists.items():
            if player["KINDS"][k][1] == kind:
                for o in items:
                    if o["metadata"]["name"] == name: return 200, o
        return 404, {"kind": "Status", "metadata": {}, "code": 404}


METRICS = ["# HELP controller_x y", "controller_persistentvolumeclaim_provision_total{class=\"pvc-%s\"} 2" % UIDS[0][0], "controller_x_bucket{le=\"1\"} 1", "controller_x_sum 0.5", "csi_sidecar_operations_seconds_count{method_name=\"/csi.v1.Controller/CreateVolume\"} 3", "csi_sidecar_operations_seconds_bucket{le=\"1\"} 3", "go_threads 7", "leader_election_master_status{name=\"x\"} 1", "csistoragecapacities_desired_goal 4", "xcontroller_y 1"]


def collects(rnd):
    out = []
    for _ in range(30):
        lists = objects(rnd); page = "\n".join(rnd.sample(METRICS, 6)) + "\n"
        sc = {"unordered": rnd.sample(["CreateVolume", "DeleteVolume"], rnd.randint(0, 2)), "keep_order": rnd.random() < .2, "skip": rnd.sample(["csi", "pvs", "leases"], rnd.randint(0, 2))}
        calls = [[rnd.choice(["Probe", "CreateVolume", "DeleteVolume"]), rnd.choice([{}, {"name": texts(rnd)}, {"volume_id": texts(rnd), "secrets": {"k": "v"}}])] for _ in range(rnd.randint(0, 8))]
        notes = rnd.choice([[], [{"note": "x", "got": texts(rnd)}]])
        r = run(Api(lists, page), **sc); r.notes = notes; r.problems = rnd.choice([[], ["timed out"]]); counts = {}
        for m, _ in calls: counts[m] = counts.get(m, 0) + 1
        r.d = types.SimpleNamespace(calls=calls, count=counts); r.a = types.SimpleNamespace(http=1, audit="")
        given = {"lists": lists, "metrics": page, "calls": calls, "notes": notes, "problems": r.problems, **sc}
        out.append([json.loads(json.dumps(given)), asyncio.run(r.collect(0))])
    return out


def waits(rnd):
    out = []
    for _ in range(20):
        lists = objects(rnd); r = run(Api(lists, "\n".join(METRICS))); calls = [["CreateVolume", {"name": rnd.choice("ab"), "parameters": rnd.choice([{}, {"name": "p"}])}] for _ in range(rnd.randint(0, 5))]
        d = player["Driver"].__new__(player["Driver"]); d.calls, d.count = calls, {"CreateVolume": len(calls)}; r.d = d; r.a = types.SimpleNamespace(http=1); r.path = player["path"]; tried = []
        for w in [{"csi": "CreateVolume", "n": 2}, {"csi": "Probe"}, {"csi": "CreateVolume", "by": "name", "n": 2, "of": 1}, {"csi": "CreateVolume", "by": "", "of": 1}, {"pv": 2}, {"no_pv": True}, {"event": "Provisioning"}, {"event": "Provisioning", "on": "a", "n": 3}, {"event": "LeaderElection", "text": "pvc-", "n": 2}, {"metric": "^go_threads [0-9]$"}, {"metric": "^go_threads$"}, {"capacities": 2}, {"kind": "VolumeSnapshot", "name": "s4", "gone": True}, {"kind": "VolumeSnapshot", "name": "s4", "path": ["metadata", "finalizers"]}, {"kind": "VolumeSnapshot", "name": "s4", "path": ["metadata", "labels", "l"], "absent": True}, {"kind": "Lease", "name": "lease4", "path": ["spec"], "equals": {"holderIdentity": "x"}}, {"kind": "PersistentVolume", "name": "pv-of:a", "path": ["spec", "claimRef"]}, {"kind": "PersistentVolume", "name": "pv-of:z", "gone": True}]:
            tried.append([w, asyncio.run(r.ok(w))])
        out.append([{"lists": lists, "calls": calls, "metrics": "\n".join(METRICS)}, tried])
    return out


if __name__ == "__main__":
    rnd = random.Random(20)
    goldens = {"uids": UIDS, "socket": SOCK, "scenarios": scenarios(), "norm": norms(rnd), "diff": diffs(rnd), "rules": rules(rnd), "collect": collects(rnd), "wait": waits(rnd)}
    with open(sys.argv[1], "w") as f: f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in goldens.items()) + "\n}\n")
