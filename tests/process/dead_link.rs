//! The real binary on a link that dies: the node of an API server loses its power, so that nothing
//! comes back, no FIN and no RST, while new connections reach another server.
//!
//! Played in network namespaces, with a router in between that drops the packets of all connections
//! which stand at that moment. It takes root, or a user who may make user namespaces, and Debian's
//! iproute2 and util-linux; where that can't be had the test is skipped, and says so. With `DEAD_LINK=1`
//! in the environment, as in CI, it fails instead.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{self, Write as _},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use kube::Client;
use serde_json::json;
use support::process::{Provisioner, Surroundings};
use testkit::{
    apiserver::serve::{Served, manifests},
    binder,
    control_plane::client_of,
    driver::{Host, Rule, Script, Scripted, VolumeSpec},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep},
};

/// client-go notices a dead HTTP/2 connection by pings: after 30 s of silence, within 15 s.
const CLIENT_GO: Duration = Duration::from_secs(45);

/// In the namespaces: server, router, program.
const SERVER: &str = "10.77.1.1";
const PROGRAM: &str = "10.77.2.2";

/// Run in the server's namespace, with the processes that hold the other two.
const NETWORK: &str = "
    set -e
    router() { nsenter -t $ROUTER -n \"$@\"; }
    program() { nsenter -t $PROGRAM -n \"$@\"; }
    ip link set lo up
    ip link add to-router type veth peer name to-server netns $ROUTER
    router ip link add to-program type veth peer name to-router netns $PROGRAM
    ip addr add 10.77.1.1/24 dev to-router
    ip link set to-router up
    router ip addr add 10.77.1.2/24 dev to-server
    router ip link set to-server up
    router ip addr add 10.77.2.1/24 dev to-program
    router ip link set to-program up
    router sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
    program ip link set lo up
    program ip addr add 10.77.2.2/24 dev to-router
    program ip link set to-router up
    program ip route add default via 10.77.2.1
    ip route add 10.77.2.0/24 via 10.77.1.2
";

/// Set in the process that has a network of its own.
const INSIDE: &str = "DEAD_LINK_INSIDE";

/// `unshare`, into a network namespace; as a user without rights in a user namespace too.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg("--net");
    command
}

/// What keeps this machine from playing it.
fn lacks() -> Option<String> {
    let tried = unshare()
        .args(["sh", "-c", "ip link add name probed type veth && ss -V && command -v nsenter"])
        .output();
    match tried {
        Err(error) => Some(format!("unshare: {error}")),
        Ok(tried) if tried.status.success() => None,
        Ok(tried) => Some(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
    }
}

#[test]
fn a_dead_link_is_noticed_within_45_seconds_and_costs_no_lease() {
    if let Some(why) = lacks() {
        assert!(env::var_os("DEAD_LINK").is_none(), "no network namespaces here: {why}");
        // Past what the harness captures.
        let _ = writeln!(io::stderr(), "SKIPPED dead_link, no network namespaces: {why}");
        return;
    }
    let mut inside = unshare();
    inside.arg(env::current_exe().unwrap()).env(INSIDE, "1");
    inside.args(["--exact", "dead_link::in_a_network_of_its_own", "--ignored", "--nocapture"]);
    assert!(inside.status().unwrap().success());
}

/// A process that holds a network namespace.
struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        // It answers once it is in its namespace, and ends with its input.
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo; exec cat"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        Self(child)
    }

    fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// A command in it.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.id(), "-n", name]);
        command
    }

    /// What a command in it prints.
    fn run(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let output = self.command(words.next().unwrap()).args(words).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The way between server and program.
struct Network {
    router: Namespace,
    program: Namespace,
}

impl Network {
    fn new() -> Self {
        let (router, program) = (Namespace::new(), Namespace::new());
        let mut setup = Command::new("sh");
        setup.args(["-c", NETWORK]).env("ROUTER", router.id()).env("PROGRAM", program.id());
        assert!(setup.status().unwrap().success());
        Self { router, program }
    }

    /// The ports of the program's connections.
    fn connections(&self) -> BTreeSet<String> {
        let listed = self.program.run("ss -Htn state established");
        let local = listed.lines().filter_map(|line| line.split_whitespace().nth(2));
        let ports = local.filter_map(|local| local.strip_prefix(PROGRAM)?.strip_prefix(':'));
        ports.map(str::to_owned).collect()
    }

    /// Nothing gets through any more on these connections, in neither direction.
    fn cut(&self, ports: &BTreeSet<String>) {
        for port in ports {
            for end in ["sport", "dport"] {
                self.router.run(&format!("ip rule add ipproto tcp {end} {port} blackhole"));
            }
        }
    }
}

/// Lets the program reach the server, which listens on the loopback device only.
#[allow(clippy::disallowed_methods)] // a server of the test's own
async fn relay(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((SERVER, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    address
}

/// A kubeconfig that leads through the relay, to the server by its name.
fn through(relay: SocketAddr, kubeconfig: &Path) -> String {
    let original = fs::read_to_string(kubeconfig).unwrap();
    let server = original.lines().find(|line| line.contains("server:")).unwrap();
    let relayed = format!("    server: https://{relay}\n    tls-server-name: 127.0.0.1");
    original.replace(server, &relayed)
}

/// The program in its namespace.
fn start(network: &Network, around: &Surroundings) -> Provisioner {
    let mut program = network.program.command(env!("CARGO_BIN_EXE_csi-provisioner"));
    program.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default());
    program.args(around.flags(&around.file("relayed.kubeconfig"), &["--leader-election", "-v=10"]));
    Provisioner::run(&mut program, around.file("log"))
}

/// The example's class and claim, under another name.
fn claim(name: &str) -> Vec<serde_json::Value> {
    let example = include_str!("../../deploy/example-claim.yaml");
    manifests::parse(&example.replace("name: data", &format!("name: {name}"))).unwrap()
}

/// From now on the driver answers a second late, with as much as a PersistentVolume takes. That is more than
/// the kernel takes of a request whose packets are not acknowledged, so its writer has to wait.
fn make_large(driver: &Host<Scripted>) {
    let context = [("large".to_owned(), "x".repeat(250_000))].into();
    let volume = VolumeSpec { volume_context: context, ..VolumeSpec::default() };
    let rule = Rule { delay_ms: Some(1000), volume, ..Rule::default() };
    driver.backend().amend(Script { create_volume: Some(vec![rule]), ..Script::default() });
}

/// Cuts these connections and creates a claim; how long it takes until they are closed, and until all
/// volumes are saved.
async fn cut(
    network: &Network,
    dead: &BTreeSet<String>,
    user: &Client,
    provisioner: &mut Provisioner,
    all_saved: impl Fn() -> bool,
) -> (Duration, Duration) {
    network.cut(dead);
    let start = Instant::now();
    manifests::apply(user, &claim("after")).await.unwrap();
    let gone = async |_: &mut Provisioner| network.connections().is_disjoint(dead);
    provisioner.until("all dead connections are closed", gone).await;
    let noticed = start.elapsed();
    provisioner.until("all volumes are saved", async |_| all_saved()).await;
    (noticed, start.elapsed())
}

/// How long after the cut, when the third claim was created, the save of the second volume arrived. `None`
/// where it is not recorded yet.
fn second_save(served: &Served) -> Option<Duration> {
    let requests = served.api().requests();
    let cut = requests.matching("create", "persistentvolumeclaims").get(2)?.received;
    let saved = requests.matching("create", "persistentvolumes").get(1)?.received;
    Some(saved.duration_since(cut).unsigned_abs())
}

#[ignore = "run by the test above, in network namespaces"]
#[tokio::test(flavor = "multi_thread")]
async fn in_a_network_of_its_own() {
    if env::var_os(INSIDE).is_none() {
        return;
    }
    let network = Network::new();
    let around = Surroundings::start(json!({"name": "disk.example.com"})).await;
    let (served, driver) = (&around.served, &around.driver);
    let relay = relay(served.url().trim_start_matches("https://").parse().unwrap()).await;
    let admin = served.layout().kubeconfig("admin");
    fs::write(around.file("relayed.kubeconfig"), through(relay, &admin)).unwrap();
    let user = client_of(&admin).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(binder::run(user.clone(), binder::Settings::default()));
    let mut provisioner = start(&network, &around);
    let volumes = || served.api().list("PersistentVolume", "").len();

    manifests::apply(&user, &claim("before")).await.unwrap();
    provisioner.until("the first volume is saved", async |_| volumes() == 1).await;
    let watches = |it: &Provisioner| it.log().matches("watch=true").count();
    provisioner.until("it watches", async |it| watches(it) >= 3).await;
    // So that there are idle connections as well, which a request may be sent on.
    sleep(Duration::from_secs(1)).await;
    make_large(driver);
    manifests::apply(&user, &claim("large")).await.unwrap();
    let asked = async |_: &mut Provisioner| driver.journal().count("CreateVolume") == 2;
    provisioner.until("the driver makes a large volume", asked).await;

    let dead = network.connections();
    assert!(dead.len() > 3, "{dead:?}");
    let all = || volumes() == 3;
    let (noticed, served_again) = cut(&network, &dead, &user, &mut provisioner, all).await;
    println!(
        "{} dead connections noticed after {noticed:?}, claims served after {served_again:?}, the large \
         request after {:?}",
        dead.len(),
        second_save(served)
    );
    assert!(noticed < CLIENT_GO, "{noticed:?}");
    assert!(served_again < 2 * CLIENT_GO, "{served_again:?}");

    assert!(!provisioner.log().contains("Stopped leading"), "{}", provisioner.log());
    assert!(provisioner.stop().await.success());
    around.stop().await;
}
