//! More clients than places, and clients that ask without a pause: probes are answered nevertheless, and the
//! program has its time.

use std::net::Ipv4Addr;

use tokio::net::TcpSocket;

use super::*;

/// How many connections the crowd keeps open, or tries to.
const CROWD: usize = 1000;

/// The time between a client's requests: shorter than the server's idle timeout.
const BEAT: Duration = Duration::from_secs(2);

/// By how much longer than those of an idle server nearly all probes may take: on a busy machine the crowd's clients
/// delay the server too. On a free machine it is a millisecond; the test prints it.
const SWIFT: Duration = Duration::from_secs(2);

/// The kubelet's time limit, after which a probe has failed.
const LIMIT: Duration = Duration::from_secs(10);

/// How many of 60 probes may fail on a busy machine: the kubelet restarts a container after three in a
/// row.
const LOST: usize = 2;

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

/// Connects from this address; all of 127.0.0.0/8 is this machine.
async fn connect_from(source: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    socket.connect(to).await
}

/// Whether a request on a kept-alive connection is answered.
async fn is_answered(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 512];
    stream.write_all(REQUEST).await.is_ok()
        && timeout(BEAT, stream.read(&mut answer))
            .await
            .is_ok_and(|read| read.is_ok_and(|length| length > 0))
}

/// A client that keeps a connection, and connects again when it has lost it.
async fn hold_on(source: Ipv4Addr, to: SocketAddr) {
    loop {
        if let Ok(mut stream) = connect_from(source, to).await {
            while is_answered(&mut stream).await {
                sleep(BEAT).await;
            }
        }
        sleep(BEAT).await;
    }
}

/// How long a probe takes, from the connection to the end of the answer; `None` without an answer in time.
async fn probe(source: Ipv4Addr, to: SocketAddr) -> Option<Duration> {
    let start = Instant::now();
    let probed = async {
        let mut stream = connect_from(source, to).await.ok()?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n").await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.ends_with("ok").then(|| start.elapsed())
    };
    timeout(LIMIT, probed).await.ok().flatten()
}

/// How long probes of the two servers take in turn, with a thread of their own as the kubelet has a process.
fn probes(prober: Ipv4Addr, servers: [SocketAddr; 2]) -> [Vec<Option<Duration>>; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..60 {
            for (server, took) in servers.into_iter().zip(&mut took) {
                took.push(probe(prober, server).await);
            }
            sleep(Duration::from_millis(100)).await;
        }
        took
    })
}

/// The times within which so many percent of the answered probes were answered.
fn quantiles<const N: usize>(probes: &[Option<Duration>], percent: [usize; N]) -> [Duration; N] {
    let mut times: Vec<_> = probes.iter().flatten().copied().collect();
    times.sort_unstable();
    percent.map(|part| times[(times.len() * part / 100).saturating_sub(1)])
}

/// Raises the limit on descriptors, by default 1,024.
fn allow_many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Lets these tests run one after the other, because each is a heavy load.
static CROWDED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Checks that probes from `prober` are answered beside many clients, whose addresses are `sources`.
async fn probes_are_answered(prober: Ipv4Addr, sources: fn(usize) -> Ipv4Addr) {
    let _alone = CROWDED.lock().await;
    allow_many_descriptors();
    let server = start("/metrics").await;
    let mut crowd = tokio::task::JoinSet::new();
    for number in 0..CROWD {
        crowd.spawn(hold_on(sources(number), server.address));
        if number % 20 == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    }
    sleep(BEAT).await;
    let idle = start("/metrics").await;
    let servers = [server.address, idle.address];
    let times = tokio::task::spawn_blocking(move || probes(prober, servers)).await.unwrap();
    let [crowded, alone] = &times;
    let [middle, most, last] = quantiles(crowded, [50, 90, 100]);
    let [usual] = quantiles(alone, [90]);
    let cut = crowded.iter().filter(|probe| probe.is_none()).count();
    let summary = format!(
        "{middle:?} in the middle, {most:?} for 90 % (an idle server: {usual:?}), {last:?} at worst, {cut} cut"
    );
    assert!(most < 3 * usual + SWIFT && cut <= LOST, "{summary}");
    println!("probes took {summary}");
}

const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 99, 99, 99);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_beside_a_thousand_connections_from_as_many_addresses() {
    let own = |number: usize| {
        let [.., high, low] = number.to_be_bytes();
        Ipv4Addr::new(127, 1, high, low)
    };
    probes_are_answered(ELSEWHERE, own).await;
}

/// How long the program's own work may wait because of the server.
const DELAYED: Duration = Duration::from_millis(100);

/// A client that sends requests for the metrics without a pause, and reads whatever comes.
async fn pipeline(source: Ipv4Addr, to: SocketAddr) {
    let requests = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    loop {
        sleep(Duration::from_millis(1)).await;
        let Ok(mut stream) = connect_from(source, to).await else { continue };
        let (mut reader, mut writer) = stream.split();
        let mut nowhere = tokio::io::sink();
        let read = tokio::io::copy(&mut reader, &mut nowhere);
        let write = async { while writer.write_all(&requests).await.is_ok() {} };
        tokio::join!(read, write).0.ok();
    }
}

/// The processor time of this thread, which a busy machine does not change.
fn thread_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// How long the program's only thread at most worked for the server while a short sleep of the program ended.
async fn longest_delay() -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..500 {
        let start = thread_time();
        sleep(Duration::from_millis(5)).await;
        longest = longest.max(thread_time().saturating_sub(start));
    }
    longest
}

#[tokio::test]
async fn clients_that_pipeline_scrapes_take_no_time_of_the_program_and_delay_no_probe() {
    let _alone = CROWDED.lock().await;
    let text = "# HELP some_metric_of_the_program with a description\nsome_metric 1\n".repeat(3000);
    let routes = Routes::new("/metrics", move || text.clone()).check("/healthz", || Ok(()));
    let server = start_routes(routes, Limits::USUAL).await;
    let address = server.address;
    // The program has one thread, which is that of this test. The clients have another one.
    let end = CancellationToken::new();
    let ends = end.clone();
    let clients = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut clients = tokio::task::JoinSet::new();
            for number in 0..64 {
                clients.spawn(pipeline(Ipv4Addr::new(127, 1, 0, 1 + number % 4), address));
            }
            ends.cancelled().await;
        });
    });
    sleep(BEAT).await;
    let probes = tokio::task::spawn_blocking(move || probes(ELSEWHERE, [address, address]));
    let delay = longest_delay().await;
    let [one, other] = probes.await.unwrap();
    end.cancel();
    let probes = [one, other].concat();
    let [most, last] = quantiles(&probes, [90, 100]);
    let cut = probes.iter().filter(|probe| probe.is_none()).count();
    clients.await.unwrap();
    let summary = format!(
        "work was delayed by {delay:?}; probes took {most:?} for 90 %, {last:?} at worst, {cut} cut"
    );
    assert!(delay < DELAYED && cut <= LOST, "{summary}");
    println!("{summary}");
}
