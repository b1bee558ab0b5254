//! The page of the admin listener: its files, its stream, and its words.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use proxy::admin::{ClientsView, GateView, Happening, PoolView, Timeline, Token, VIEWERS_MAX, watch};
use proxy::gate::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{code, get, listening, sent};

/// What a viewer of the page is sent, up to this text.
async fn watched(address: SocketAddr, until: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /page/events HTTP/1.1\r\nHost: gate\r\n\r\n").await.unwrap();
    let (mut told, mut buffer) = (String::new(), [0; 4096]);
    while !told.contains(until) {
        let count = stream.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "it ended after: {told}");
        told += &String::from_utf8_lossy(&buffer[..count]);
    }
    (stream, told)
}

/// A gate with a real driver and nothing else.
struct Driven(Arc<Driver>);

impl GateView for Driven {
    fn driver(&self) -> Option<&Driver> {
        Some(&self.0)
    }
    fn mode(&self) -> &'static str {
        "enforce"
    }
    fn listen(&self) -> String {
        "here".to_owned()
    }
    fn upstream(&self) -> String {
        "there".to_owned()
    }
    fn pools(&self) -> Vec<PoolView> {
        Vec::new()
    }
    fn clients(&self) -> ClientsView {
        ClientsView::default()
    }
}

#[tokio::test]
async fn the_page_and_its_files_come_from_here_alone_and_are_small() {
    let (address, _admin) = listening().await;
    let (_, head, page) = get(address, "/").await;
    assert!(head.contains("default-src 'none'; script-src 'self'"), "{head}");
    let mut bytes = page.len();
    for name in
        ["page.css", "page.js", "act.js", "dom.js", "why.js", "model.js", "words.js", "curves.js", "types.js"]
    {
        let (status, head, text) = get(address, &format!("/page/{name}")).await;
        assert_eq!(status, "HTTP/1.1 200 OK", "{name}");
        assert!(head.contains("nosniff"), "{head}");
        let imports = text.lines().filter(|line| line.starts_with("import "));
        assert!(imports.into_iter().all(|line| line.contains(" from \"./")), "{name}");
        bytes += text.len();
    }
    assert!(bytes < 200_000, "{bytes} bytes");
}

#[test]
fn the_page_takes_any_fragment_and_says_that_others_watch_already() {
    let told = "console.log(JSON.stringify([named('100%'), named('my%20gate'), \
                ...verdict(undefined, 'ready', '16 viewers watch already').slice(1)]))";
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/page/words.js");
    let script = format!("{}\n{told}", std::fs::read_to_string(page).unwrap());
    let node = Command::new("node").args(["--input-type=module", "--eval", &script]).output();
    let output = node.expect("node runs; scripts/setup drivers installs it");
    let said: Vec<String> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(said[..3], ["", "my gate", "No room for another viewer"]);
    assert!(said[3].starts_with("16 viewers watch already."), "{said:?}");
}

#[tokio::test]
async fn a_viewer_is_told_everything_at_first_and_then_what_changes() {
    let (address, admin) = listening().await;
    let driver = Driver::new("shop", admission::Policy::default(), 1);
    admin.add_gate(Arc::new(Driven(driver)));
    let timeline = Timeline::default();
    admin.show_timeline(timeline.clone());
    let happening = |text: &str| Happening { level: "info", text: text.to_owned(), ..Happening::default() };
    timeline.note(happening("ready"), std::time::SystemTime::now());
    let (mut stream, told) = watched(address, "\"text\":\"ready\"").await;
    assert!(told.contains("text/event-stream") && told.contains("event: hello"), "{told}");
    assert!(told.contains("\"name\":\"shop\"") && told.contains("\"queued\":0"), "{told}");

    timeline.note(happening("another thing"), std::time::SystemTime::now());
    tokio::spawn(watch(Arc::clone(&admin)));
    let (mut told, mut buffer) = (String::new(), [0; 4096]);
    while !told.contains("another thing") {
        let count = stream.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "it ended after: {told}");
        told += &String::from_utf8_lossy(&buffer[..count]);
    }
    assert!(told.contains("event: frame"), "{told}");
}

#[tokio::test]
async fn viewers_have_a_bound() {
    let (address, _admin) = listening().await;
    let mut viewers = Vec::new();
    for _ in 0..VIEWERS_MAX {
        viewers.push(watched(address, "event: hello").await.0);
    }
    let (status, _, body) = get(address, "/page/events").await;
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(body.contains("no room"), "{body}");
}

#[tokio::test]
async fn everything_passes_only_by_the_token_and_only_once() {
    let (address, admin) = listening().await;
    let driver = Driver::new("pool", admission::Policy::default(), 1);
    admin.add_gate(Arc::new(Driven(driver)));
    let token = "0123456789abcdef";
    admin.set_token(Some(Token::of(token.as_bytes()).unwrap()));
    let post = async |path: &str, token: &str| {
        let head = format!("Host: gate\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n");
        let request = format!("POST {path} HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n");
        sent(TcpStream::connect(address).await.unwrap(), &request).await
    };
    for path in ["/allowed", "/gates/pool/pass", "/gates/pool/enforce"] {
        assert_eq!(
            code(&post(path, "wrong").await),
            ("403", "this isn't the token of token_file\n"),
            "{path}"
        );
    }
    assert_eq!(code(&post("/allowed", token).await).0, "200");
    assert_eq!(code(&post("/gates/other/pass", token).await).0, "404");
    assert_eq!(code(&post("/gates/shop/pass", token).await).0, "409", "it has no driver");
    let enforce = "/gates/pool/enforce";
    assert_eq!(code(&post(enforce, token).await), ("409", "gate pool: it decides already\n"));
    let head = format!("Host: gate\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n");
    let of_a_part = format!(
        "POST /gates/pool/pass HTTP/1.1\r\n{head}Content-Length: 19\r\n\r\n{{\"database\":\"shop\"}}"
    );
    let told = sent(TcpStream::connect(address).await.unwrap(), &of_a_part).await;
    let whole = "gate pool: this is of the whole gate, so send no body\n";
    assert_eq!(code(&told), ("400", whole), "a part of the gate was meant");
    let passes = async || get(address, "/status").await.2.contains("\"passes_everything\":true");
    assert_eq!(code(&post("/gates/pool/pass", token).await).0, "200");
    assert!(passes().await);
    assert_eq!(code(&post(enforce, token).await).0, "200");
    assert!(!passes().await);
}
