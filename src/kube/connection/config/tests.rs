//! Tests of loading the configuration; they do not touch the process's environment.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

use super::*;
use crate::kube::testing::{request, send};

/// A temporary directory, removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("kube-api-config-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn kubeconfig_text(cluster: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         users: [{{name: u, user: {{token: secret}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\n"
    )
}

fn resolve(master: &str, kubeconfig: &str, environment: &[(&str, &str)]) -> ConfigSource {
    ConfigSource::resolve(Some(master), Some(Path::new(kubeconfig)), |name| {
        environment.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
    })
}

#[test]
fn the_environments_kubeconfig_wins_over_the_flag() {
    let chosen = |flag, variable| resolve("", flag, &[("KUBECONFIG", variable)]).kubeconfig;
    assert_eq!(chosen("/flag", "/variable"), [Path::new("/variable")]);
    assert_eq!(chosen("/flag", "/a::/b"), [Path::new("/a"), Path::new("/b")]);
    assert_eq!(chosen("/flag:1", ""), [Path::new("/flag:1")]);
    assert!(chosen("", "").is_empty());
    assert_eq!(resolve("", "", &[]), ConfigSource::default());
    assert_eq!(resolve("http://m", "", &[]).master.as_deref(), Some("http://m"));
}

#[test]
fn a_pod_is_known_by_its_environment() {
    let [host, port] = [("KUBERNETES_SERVICE_HOST", "fd00::1"), ("KUBERNETES_SERVICE_PORT", "443")];
    assert!(resolve("", "", &[host, port]).is_in_pod);
    assert!(!resolve("", "", &[host, (port.0, "")]).is_in_pod);
    let lacks_files = InClusterError::ReadDefaultNamespace(std::io::ErrorKind::NotFound.into());
    assert_eq!(
        ConfigError::from(lacks_files).to_string(),
        "unable to load in-cluster configuration: failed to read the default namespace: entity not found; does the pod's spec say automountServiceAccountToken: false?"
    );
}

#[tokio::test]
async fn a_kubeconfig_is_used_and_master_overrides_its_server() {
    let directory = Directory::new();
    directory.file("ca.crt", AUTHORITY);
    let path = directory.file(
        "config",
        &kubeconfig_text("server: 'https://a:1/prefix', certificate-authority: ca.crt"),
    );
    let url = async |master: &str, path: &Path| {
        load(&resolve(master, path.to_str().unwrap(), &[])).await.unwrap().cluster_url.to_string()
    };
    assert_eq!(url("", &path).await, "https://a:1/prefix");
    assert_eq!(url("https://b:2", &path).await, "https://b:2/");
    assert_eq!(url("b:2", &path).await, "https://b:2/");
    let bare = directory.file("bare", &kubeconfig_text(""));
    assert_eq!(url("b:2", &bare).await, "http://b:2/");
}

#[tokio::test]
async fn several_kubeconfigs_are_merged_and_the_first_to_say_something_counts() {
    let directory = Directory::new();
    let other = kubeconfig_text("server: 'https://other'").replace("current-context: c", "");
    let other = directory.file("other", &other);
    let empty = directory.file("empty", "apiVersion: v1\nkind: Config\ncurrent-context: ''\n");
    let config = directory.file("config", &kubeconfig_text("server: 'https://config'"));
    let context = directory.file("context", "current-context: c\n");
    let missing = directory.0.join("missing");
    let loaded = async |paths: &[&Path]| {
        let paths = env::join_paths(paths).unwrap();
        load(&resolve("", "", &[("KUBECONFIG", paths.to_str().unwrap())])).await
    };
    let server = async |paths: &[&Path]| loaded(paths).await.unwrap().cluster_url.to_string();
    assert_eq!(server(&[&config, &other]).await, "https://config/");
    assert_eq!(server(&[&other, &config]).await, "https://other/");
    assert_eq!(server(&[&missing, &empty, &other, &context]).await, "https://other/");
    let error = loaded(&[&missing, &directory.0.join("too")]).await.unwrap_err().to_string();
    assert!(error.contains("missing") && error.contains("too"), "{error}");
}

#[tokio::test]
async fn the_kubeconfig_may_name_a_proxy() {
    let directory = Directory::new();
    let proxy = |cluster: &str| {
        let file = directory.file("config", &kubeconfig_text(cluster));
        let source = resolve("", file.to_str().unwrap(), &[]);
        async move {
            let config = load(&source).await?;
            Ok::<_, ConfigError>(config.proxy_url.map(|url| url.to_string()))
        }
    };
    let named = proxy("server: https://s, proxy-url: 'socks5://file:2'").await.unwrap();
    assert_eq!(named.as_deref(), Some("socks5://file:2/"));
    assert_eq!(proxy("server: https://s").await.unwrap(), None);
    let error = proxy("server: https://s, proxy-url: 'ftp://u:hush@p'").await.unwrap_err();
    assert!(error.to_string().starts_with("the kubeconfig's proxy-url is not"), "{error}");
}

#[tokio::test]
async fn a_token_file_holds_the_token_alone() {
    let directory = Directory::new();
    for (text, is_good) in [("abc", true), ("abc\n", false)] {
        let token = directory.file("token", text);
        let named = format!("tokenFile: '{}'", token.display());
        let kubeconfig = kubeconfig_text("server: https://s").replace("token: secret", &named);
        let file = directory.file("config", &kubeconfig);
        let loaded = load(&resolve("", file.to_str().unwrap(), &[])).await;
        assert_eq!(loaded.is_ok(), is_good, "{text:?}");
        let error = loaded.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!error.contains("abc") && error.contains("newline") != is_good, "{error}");
    }
}

#[tokio::test]
async fn the_error_of_a_kubeconfig_has_none_of_its_content() {
    let directory = Directory::new();
    let file = |text: &str| directory.file("config", text);
    for text in [
        "users: [{name: u, user: {token: hush}}]\nclusters: [",
        "users:\n- name: u\n  user:\n    token: [hush]\n",
        "users:\n- name: u\n  user: hush\n",
        "users:\n- name: u\n  user:\n    token: hush\n   clusters: x\n",
    ] {
        let error = load(&resolve("", file(text).to_str().unwrap(), &[])).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("line") && !text.contains("hush"), "{text}");
    }
}

/// A kubeconfig with a credential plugin that runs a shell script.
async fn with_plugin(directory: &Directory, script: &str) -> kube::Config {
    let plugin = directory.file("plugin", script);
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['{}'], interactiveMode: Never}}",
        plugin.display()
    );
    let text = kubeconfig_text("server: 'https://a'").replace("token: secret", &exec);
    let file = directory.file("config", &text);
    load(&resolve("", file.to_str().unwrap(), &[])).await.unwrap()
}

#[tokio::test]
async fn the_error_of_a_credential_plugin_has_none_of_its_output() {
    let directory = Directory::new();
    for (script, why) in [
        ("echo hush", "no ExecCredential"),
        ("echo '{\"status\": {\"token\": [\"hush\"]}}'", "no ExecCredential"),
        ("echo hush; exit 3", "exit status: 3"),
    ] {
        let config = with_plugin(&directory, script).await;
        let error = Connections::open(&config).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(why) && !text.contains("hush"), "{text}");
    }
}

#[tokio::test]
async fn the_error_of_refreshing_an_expired_token_has_none_of_the_plugins_output() {
    let directory = Directory::new();
    let expired =
        "echo '{\"kind\": \"ExecCredential\", \"apiVersion\": \"client.authentication.k8s.io/v1\",
        \"status\": {\"token\": \"t\", \"expirationTimestamp\": \"2000-01-01T00:00:00Z\"}}'";
    let config = with_plugin(&directory, expired).await;
    let connections = Connections::open(&config).unwrap();
    directory.file("plugin", "echo hush");
    let asking = send(&connections.kept, request(http::Method::GET, "/version"));
    let error = asking.await.unwrap_err();
    let text = format!("{error} {error:?} {:?}", error.source().map(ToString::to_string));
    assert!(text.contains("no ExecCredential") && !text.contains("hush"), "{text}");
}
