#!/usr/bin/env python3
"""Leader election together with an elector that somebody else wrote: the Kubernetes project's
Python client (`kubernetes.leaderelection` with its `LeaseLock`), unmodified.

Both take part in one election, over HTTPS, at the project's own API server. Each leads in turn
and ends in each of its ways; at no moment may both believe to lead.

`lease_lock.py check TESTKIT PROVISIONER` plays it; `lease_lock.py elect KUBECONFIG NAME` is the
Python candidate, a process of its own.
"""

import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

DRIVER = "disk.csi.example.com"
LEASE = "disk-csi-example-com"
NAMESPACE = "default"

# Whole seconds, as the Python client wants them.
LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD = 3, 2, 1

# What a take-over may need beyond the waits that the rules ask for: processes start, machines are busy.
SLACK = 3
# A silent holder: its record is seen up to 2.2 retry periods late, then stands still for its duration.
AFTER_SILENCE = LEASE_DURATION + 2.2 * RETRY_PERIOD + SLACK
# Long enough for a candidate that breaks the rules to show it.
WATCHED = 3 * LEASE_DURATION


class Child:
    """A process whose lines are kept."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def wait_for_line(self, pattern):
        until(f"{self.process.args[0]} says {pattern!r}", 20,
              lambda: self.process.poll() is not None or any(re.search(pattern, line) for line in self.lines))

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.process.wait(30)


class Python(Child):
    """The Python candidate."""

    def __init__(self, world, name):
        super().__init__(sys.executable, __file__, "elect", world.kubeconfig("admin"), name)

    def leads(self):
        return self.process.poll() is None and self.lines[-1:] == ["leads"]


class Provisioner(Child):
    """Our candidate; its metric says whether it believes to lead."""

    def __init__(self, world):
        self.url = f"127.0.0.1:{free_port()}"
        super().__init__(
            world.binary, f"--csi-address={world.socket}", f"--kubeconfig={world.kubeconfig('sa')}",
            "--leader-election", f"--leader-election-namespace={NAMESPACE}",
            f"--leader-election-lease-duration={LEASE_DURATION}s",
            f"--leader-election-renew-deadline={RENEW_DEADLINE}s",
            f"--leader-election-retry-period={RETRY_PERIOD}s", f"--http-endpoint={self.url}")

    def leads(self):
        if self.process.poll() is not None:
            return False
        try:
            text = urllib.request.urlopen(f"http://{self.url}/metrics", timeout=5).read().decode()
        except OSError:
            return False
        return re.search(r"^leader_election_master_status\{.*\} 1$", text, re.MULTILINE) is not None


class World:
    """An API server and a driver; everything in it ends with it."""

    def __init__(self, testkit, binary, root):
        self.binary, self.root = binary, pathlib.Path(root)
        self.socket = self.root / "csi.sock"
        self.children = []
        self.keep(Child(testkit, "serve", f"--dir={root}", "--port=0")).wait_for_line("^ready")
        self.keep(Child(testkit, "driver", f"--socket={self.socket}", f"--root={root}/volumes", f"--name={DRIVER}")
                  ).wait_for_line("^ready")

    def keep(self, child):
        self.children.append(child)
        return child

    def kubeconfig(self, user):
        return str(self.root / f"{user}.kubeconfig")

    def start_python(self, name):
        return self.keep(Python(self, name))

    def start_provisioner(self):
        return self.keep(Provisioner(self))

    def leaders(self):
        """Who believes to lead now; two are one too many."""
        leaders = [child for child in self.children if isinstance(child, (Python, Provisioner)) and child.leads()]
        assert len(leaders) < 2, "two lead at once"
        return leaders

    def takes_over(self, child, within, not_before=0):
        start = time.monotonic()
        until("the other leads", within, lambda: self.leaders() == [child])
        took = time.monotonic() - start
        assert took >= not_before, f"it took over after {took:.1f} s, which is {not_before - took:.1f} s too early"
        return took

    def nothing_changes(self, leader):
        start = time.monotonic()
        while time.monotonic() - start < WATCHED:
            assert self.leaders() == [leader], "leadership changed without need"
            time.sleep(0.1)

    def end(self):
        for child in self.children:
            if child.process.poll() is None:
                child.process.kill()
                child.process.wait()


def free_port():
    # None that the kernel gives to a connection meanwhile.
    while True:
        port = random.randrange(15000, 32768)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def until(what, seconds, holds):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited {seconds:.1f} s in vain until {what}"
        time.sleep(0.05)


def python_leads_and_dies(world):
    python = world.start_python("python-1")
    world.takes_over(python, 10)
    ours = world.start_provisioner()
    world.nothing_changes(python)
    python.end(signal.SIGKILL)
    # Its last renewal was seen at most a retry period and a bit ago.
    world.takes_over(ours, AFTER_SILENCE, not_before=LEASE_DURATION - RETRY_PERIOD - 0.5)
    return ours


def ours_stops_in_order(world, ours):
    python = world.start_python("python-2")
    world.nothing_changes(ours)
    assert ours.end(signal.SIGTERM) == 0, ours.lines
    # A Lease that was given back is taken at the next look.
    world.takes_over(python, RETRY_PERIOD + SLACK)
    return python


def ours_dies(world, python):
    ours = world.start_provisioner()
    python.end(signal.SIGKILL)
    world.takes_over(ours, AFTER_SILENCE)
    heir = world.start_python("python-3")
    world.nothing_changes(ours)
    ours.end(signal.SIGKILL)
    world.takes_over(heir, AFTER_SILENCE)
    return heir


def ours_sleeps_through_its_term(world, python):
    ours = world.start_provisioner()
    python.end(signal.SIGKILL)
    world.takes_over(ours, AFTER_SILENCE)
    heir = world.start_python("python-4")
    time.sleep(RETRY_PERIOD)
    ours.process.send_signal(signal.SIGSTOP)
    # What a stopped process believes is its own affair; it is looked at again once it goes on.
    world.children.remove(ours)
    try:
        world.takes_over(heir, AFTER_SILENCE)
        ours.process.send_signal(signal.SIGCONT)
        assert ours.process.wait(RENEW_DEADLINE + SLACK) == 1, ours.lines
    finally:
        world.keep(ours)
    assert any("Stopped leading" in line for line in ours.lines), ours.lines
    world.nothing_changes(heir)


def check(testkit, binary):
    with tempfile.TemporaryDirectory() as root:
        world = World(testkit, binary, root)
        try:
            ours = python_leads_and_dies(world)
            print("a Python leader was stood by, and followed when it died", flush=True)
            python = ours_stops_in_order(world, ours)
            print("our leader was stood by, and handed over in order", flush=True)
            python = ours_dies(world, python)
            print("our leader was followed when it died", flush=True)
            ours_sleeps_through_its_term(world, python)
            print("our leader ended when it found its term over", flush=True)
        except BaseException:
            for child in world.children:
                print(*child.process.args[:3], *child.lines[-40:], sep="\n  ", file=sys.stderr)
            raise
        finally:
            world.end()
    print("4 passed, 0 failed")


def elect(kubeconfig, name):
    from kubernetes import config
    from kubernetes.leaderelection import electionconfig, leaderelection
    from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

    def say(what):
        print(what, flush=True)

    config.load_kube_config(config_file=kubeconfig)
    settings = electionconfig.Config(
        LeaseLock(LEASE, NAMESPACE, name), lease_duration=LEASE_DURATION, renew_deadline=RENEW_DEADLINE,
        retry_period=RETRY_PERIOD, onstarted_leading=lambda: say("leads"), onstopped_leading=lambda: say("stopped"))
    leaderelection.LeaderElection(settings).run()


if __name__ == "__main__":
    {"check": check, "elect": elect}[sys.argv[1]](*sys.argv[2:])
