//! The real binary behind a proxy: TLS to the API server through a tunnel, for requests and watches
//! alike, and nothing past it.

use std::{fs, net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use serde_json::json;
use support::process::{Provisioner, Surroundings};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

const SIDECAR: &str = env!("CARGO_BIN_EXE_csi-provisioner");

/// A proxy that lets tunnels through and keeps what was asked of it.
struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    #[allow(clippy::disallowed_methods)] // a server of the test's own
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(tunnel(client, Arc::clone(&noted)));
            }
        });
        Self { address, asked }
    }
}

async fn tunnel(mut client: TcpStream, asked: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    asked.lock().push(head.clone());
    let mut server = TcpStream::connect(head.split(' ').nth(1).unwrap()).await.unwrap();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let mut first = [0];
    client.read_exact(&mut first).await.unwrap();
    // A TLS record of a handshake begins with this byte; a request in plain text with a letter.
    assert_eq!(first, [0x16], "what goes through the tunnel is encrypted");
    server.write_all(&first).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_goes_through_the_proxys_tunnel() {
    let around = Surroundings::start(json!({"name": "disk.example.com"})).await;
    let proxy = Proxy::start().await;

    let original = fs::read_to_string(around.served.layout().kubeconfig("admin")).unwrap();
    let url = format!("proxy-url: http://user:hush@{}", proxy.address);
    let named = original.replacen("server:", &format!("{url}\n    server:"), 1);
    let kubeconfig = around.file("behind-proxy.kubeconfig");
    fs::write(&kubeconfig, named).unwrap();
    let flags = around.flags(&kubeconfig, &["--leader-election", "-v=10"]);
    let mut provisioner = Provisioner::start(SIDECAR, &flags, around.file("log"));
    let leads = |log: &str| log.contains("Successfully acquired lease");
    provisioner.until("it leads through the proxy", async |it| leads(&it.log())).await;
    let watches = |it: &Provisioner| it.log().matches("watch=true").count();
    provisioner.until("it watches through the proxy", async |it| watches(it) >= 3).await;
    assert!(provisioner.stop().await.success());

    assert!(!provisioner.log().contains("hush"), "the proxy's password is logged");
    let asked = proxy.asked.lock().clone();
    let expected = around.served.url().trim_start_matches("https://");
    assert!(!asked.is_empty());
    for head in asked {
        assert!(head.starts_with(&format!("CONNECT {expected} HTTP/1.1\r\n")), "{head}");
        assert!(head.contains("\r\nProxy-Authorization: Basic dXNlcjpodXNo\r\n"), "{head}");
    }
    around.stop().await;
}

/// Whether the program leads with these variables in its environment, and what the proxy was asked for.
async fn led_with(variables: &[(&str, &str)]) -> usize {
    let around = Surroundings::start(json!({})).await;
    let proxy = Proxy::start().await;
    let address = format!("http://user:hush@{}", proxy.address);
    let filled: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (*name, if *value == "PROXY" { address.as_str() } else { *value }))
        .collect();
    let kubeconfig = around.served.layout().kubeconfig("admin");
    let flags = around.flags(&kubeconfig, &["--leader-election"]);
    let mut provisioner = Provisioner::start_in(SIDECAR, &filled, &flags, around.file("log"));
    let leads = |log: &str| log.contains("Successfully acquired lease");
    provisioner.until("it leads", async |it| leads(&it.log())).await;
    assert!(provisioner.stop().await.success());
    assert!(!provisioner.log().contains("hush"), "{}", provisioner.log());
    around.stop().await;
    let asked = proxy.asked.lock();
    assert!(asked.iter().all(|head| head.contains("Proxy-Authorization: Basic dXNlcjpodXNo")));
    asked.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environments_proxy_serves_what_no_proxy_does_not_name() {
    assert!(led_with(&[("HTTPS_PROXY", "PROXY")]).await > 0);
    assert_eq!(led_with(&[("HTTPS_PROXY", "PROXY"), ("NO_PROXY", "127.0.0.0/8")]).await, 0);
}

/// As some images have them in their environment, with a password that nobody may read.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_proxy_in_the_environment_counts_as_none() {
    assert_eq!(led_with(&[("HTTPS_PROXY", "http://[user:hush@proxy")]).await, 0);
}
