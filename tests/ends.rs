//! The real binary ends when it is told to, whatever it is doing.

// What tests share fails like a test does.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // other tests share it
#[path = "walk/process.rs"]
mod process;

use std::{fs, time::Duration};

use process::{Directory, Provisioner};
use tokio::time::Instant;

/// A plugin for credentials that takes its time, and says when it began.
fn kubeconfig(began: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         users:\n- name: u\n  user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      \
         command: /bin/sh\n      args: [-c, 'echo > {began}; exec /bin/sleep 5']\n      interactiveMode: Never\n"
    )
}

#[tokio::test]
async fn a_signal_is_heard_before_there_is_a_way_to_the_api_server() {
    let directory = Directory::new();
    let (file, began) = (directory.0.join("kubeconfig"), directory.0.join("began"));
    fs::write(&file, kubeconfig(began.to_str().unwrap())).unwrap();
    let argument = format!("--kubeconfig={}", file.display());
    let mut provisioner = Provisioner::start(&[argument], directory.0.join("log"));
    provisioner.until("the plugin runs", async |_| began.exists()).await;
    let told = Instant::now();
    assert_eq!(provisioner.stop().await.code(), Some(0), "{}", provisioner.log());
    assert!(told.elapsed() < Duration::from_secs(4), "it waited for the plugin");
}
