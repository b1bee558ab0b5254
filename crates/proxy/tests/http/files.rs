//! Files that a route serves: ranges, validators, variants, and no way out of the directory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use admission::Policy;
use http::Response;
use http_body_util::BodyExt;
use proxy::admin::GateView;
use proxy::http::{Files, TypeRule, UplinkRate, UplinkSettings, rule_segments};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::http2;
use crate::site::{Client, Site, Told, full, gate, one_at_a_time, service};

const SECRET: &str = "nobody may read this";

/// A directory `files` beside a secret.
fn tree() -> TempDir {
    let root = TempDir::new().unwrap();
    let files = root.path().join("files");
    fs::create_dir_all(files.join("sub/.well-known")).unwrap();
    for (name, text) in [
        ("../secret", SECRET),
        ("index.html", "<p>home"),
        ("page.html", "<p>plain"),
        ("page.html.gz", "as gzip"),
        ("page.html.br", "as brotli"),
        ("sub/index.html", "<p>below"),
        ("sub/a;b c.txt", "odd"),
        ("sub/.well-known/x", "known"),
        (".hidden", SECRET),
        ("empty", ""),
    ] {
        fs::write(files.join(name), text).unwrap();
    }
    fs::write(files.join("large.bin"), pattern(300_000)).unwrap();
    symlink("sub/index.html", files.join("inside")).unwrap();
    symlink("../secret", files.join("outside")).unwrap();
    symlink(root.path().join("secret"), files.join("absolute")).unwrap();
    symlink("..", files.join("up")).unwrap();
    symlink("loop", files.join("loop")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        files.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    root
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

fn route(path: &str, directory: &Path) -> TypeRule {
    let path = rule_segments(path);
    let prefix = path.iter().filter(|segment| *segment != "**").cloned().collect();
    let files = Files { directory: directory.to_owned(), prefix };
    TypeRule { method: None, path, name: "files".into(), files: Some(Arc::new(files)) }
}

/// A gate that serves `files` below `/assets`; everything else is answered by a service.
async fn site(root: &TempDir, policy: Policy) -> Site {
    let answer = async |_| Response::new(full("the service"));
    let files = root.path().join("files");
    gate(policy, &[service(answer).await], |settings| settings.types = vec![route("/assets/**", &files)])
        .await
}

/// What is answered to a request with this target and these fields.
async fn ask(site: &Site, method: &str, target: &str, fields: &str) -> Told {
    let mut client = Client::connect(site).await;
    client.send(&format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n")).await;
    let mut told = client.head().await.expect("an answer");
    if method != "HEAD" && told.status != 304 {
        let length = told.field("content-length").map_or(0, |length| length.parse().unwrap());
        told.body = client.exactly(length).await;
    }
    assert!(client.is_over().await, "{target}: nothing comes after it");
    told
}

#[tokio::test]
async fn a_route_serves_files_and_everything_else_is_the_services() {
    let root = tree();
    let site = site(&root, Policy::default()).await;
    for (target, text) in [
        ("/assets/page.html", "<p>plain"),
        ("/assets/", "<p>home"),
        ("/assets/sub/", "<p>below"),
        ("/assets/inside", "<p>below"),
        ("/assets/empty", ""),
        ("/x/../assets/./sub//a%3bb%20c.txt?v=1", "odd"),
        ("/assets/sub/.well-known/x", "known"),
        ("/%61ssets/page.html", "<p>plain"),
        ("/other", "the service"),
        ("/assets/../other", "the service"),
    ] {
        let told = ask(&site, "GET", target, "").await;
        assert_eq!((told.status, told.text()), (200, text), "{target}");
    }
    let told = ask(&site, "GET", "/assets/page.html", "").await;
    assert_eq!(told.field("content-type"), Some("text/html"));
    let told = ask(&site, "GET", "/assets/large.bin", "").await;
    assert!(told.body == pattern(300_000));
    // A directory has a slash at its end; the answer says where.
    let told = ask(&site, "GET", "/assets/sub?q", "").await;
    assert_eq!((told.status, told.field("location")), (307, Some("/assets/sub/?q")));
    let told = ask(&site, "HEAD", "/assets/large.bin", "").await;
    assert_eq!((told.status, told.field("content-length")), (200, Some("300000")));
}

#[tokio::test]
async fn only_get_and_head_are_allowed_and_a_body_is_not_taken_for_a_request() {
    let root = tree();
    let site = site(&root, Policy::default()).await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
        let told = ask(&site, method, "/assets/page.html", "").await;
        assert_eq!((told.status, told.field("allow")), (405, Some("GET,HEAD")), "{method}");
    }
    let mut client = Client::connect(&site).await;
    client.send("POST /assets/empty HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\nGET /secret ").await;
    assert_eq!(client.response().await.unwrap().status, 405);
    client.send("HTTP/1.1\r\nHost: a\r\n").await;
    client.ends().await;
}

#[tokio::test]
async fn nothing_leads_out_of_the_directory() {
    let root = tree();
    let site = site(&root, Policy::default()).await;
    for target in [
        "/assets/../secret",
        "/assets/..%2fsecret",
        "/assets/%2e%2e/secret",
        "/assets/%2e%2e%2fsecret",
        "/assets/sub/../../secret",
        "/assets/sub/..%2f..%2fsecret",
        "/assets/..;/secret",
        "/assets/..\\secret",
        "/assets/..%5csecret",
        "/assets/%252e%252e%252fsecret",
        "/assets/outside",
        "/assets/absolute",
        "/assets/up/secret",
        "/assets/up/files/page.html",
        "/assets/loop",
        "/assets/pipe",
        "/assets/.hidden",
        "/assets/%2ehidden",
        "/assets//etc/passwd",
        "/assets/%2fetc%2fpasswd",
        "/assets/page.html%00.txt",
        "/assets/page.html/",
        "/assets/page.html/x",
        "/assets/%ff",
        "/assets/none",
        "/assets/proc/self/environ",
    ] {
        let told = ask(&site, "GET", target, "").await;
        let text = String::from_utf8_lossy(&told.body);
        let is_services = told.status == 200 && text == "the service";
        assert!(told.status == 404 || told.status == 400 || is_services, "{target}: {} {text}", told.status);
        assert!(!text.contains(SECRET), "{target}");
    }
    // A path of more than a name may have.
    let long = format!("/assets/{}", "x".repeat(5_000));
    assert_eq!(ask(&site, "GET", &long, "").await.status, 404);
}

#[tokio::test]
async fn parts_of_a_file_are_served() {
    let root = tree();
    let site = site(&root, Policy::default()).await;
    let all = pattern(300_000);
    for (range, status, part) in [
        ("bytes=0-0", 206, &all[..1]),
        ("bytes=100000-200000", 206, &all[100_000..=200_000]),
        ("bytes=299999-", 206, &all[299_999..]),
        ("bytes=-5", 206, &all[299_995..]),
        ("bytes=-300001", 206, &all[..]),
        ("bytes=-18446744073709551615", 206, &all[..]),
        ("bytes=-99999999999999999999", 206, &all[..]),
        ("bytes=-00005", 206, &all[299_995..]),
        ("bytes=299999-99999999999999999999", 206, &all[299_999..]),
        ("bytes=99999999999999999999-", 416, &[]),
        ("bytes=-0", 416, &[]),
        ("bytes=300000-", 416, &[]),
        ("bytes=5-2", 416, &[]),
    ] {
        let told = ask(&site, "GET", "/assets/large.bin", &format!("Range: {range}\r\n")).await;
        assert_eq!(told.status, status, "{range}");
        assert!(told.body == part, "{range}");
    }
    for range in ["bytes=-5", "bytes=0-"] {
        let told = ask(&site, "GET", "/assets/empty", &format!("Range: {range}\r\n")).await;
        assert_eq!((told.status, told.text()), (200, ""), "{range}: an empty file has no part");
    }
    let told = ask(&site, "HEAD", "/assets/large.bin", "Range: bytes=1-2\r\n").await;
    assert_eq!((told.status, told.field("content-length")), (200, Some("300000")));
    let told = ask(&site, "GET", "/assets/large.bin", "Range: bytes=1-2\r\n").await;
    assert_eq!(told.field("content-range"), Some("bytes 1-2/300000"));
    for ignored in ["bytes=1-2,5-6", "items=0-1", "bytes", "", "bytes=-", "bytes= -5", "bytes=-+5"] {
        let told = ask(&site, "GET", "/assets/large.bin", &format!("Range: {ignored}\r\n")).await;
        assert_eq!((told.status, told.body.len()), (200, all.len()), "{ignored}");
    }
}

#[tokio::test]
async fn a_part_is_only_served_of_the_version_that_the_client_has_a_part_of() {
    let root = tree();
    let site = site(&root, Policy::default()).await;
    let part = async |known: &str, range: &str| {
        let fields = format!("Range: bytes={range}\r\nIf-Range: {known}\r\n");
        ask(&site, "GET", "/assets/page.html", &fields).await
    };
    let told = ask(&site, "GET", "/assets/page.html", "").await;
    let etag = told.field("etag").unwrap().to_owned();
    let modified = told.field("last-modified").unwrap().to_owned();
    let told = part(&etag, "3-4").await;
    assert_eq!((told.status, told.text(), told.field("etag")), (206, "pl", Some(&*etag)));
    assert_eq!(part(&etag, "100-").await.status, 416);
    // A weak tag and a date don't tell two versions of one second apart.
    let others = ["\"x\"", &format!("W/{etag}"), &modified, "Mon, 01 Jan 1990 00:00:00 GMT", "nonsense", "*"];
    for known in others {
        for range in ["3-4", "100-"] {
            let told = part(known, range).await;
            let whole = (told.status, told.text(), told.field("content-range"));
            assert_eq!(whole, (200, "<p>plain", None), "{known}, {range}");
        }
    }
    fs::write(root.path().join("files/page.html"), "<p>another").unwrap();
    let told = part(&etag, "3-4").await;
    assert_eq!((told.status, told.text()), (200, "<p>another"), "what was begun is of another version");
    // Alone it means nothing.
    let told = ask(&site, "GET", "/assets/page.html", "If-Range: \"x\"\r\n").await;
    assert_eq!(told.status, 200);
}

#[tokio::test]
async fn a_client_that_has_a_file_is_told_so() {
    let root = tree();
    let site = site(&root, Policy::default()).await;
    let told = ask(&site, "GET", "/assets/page.html", "").await;
    let etag = told.field("etag").unwrap().to_owned();
    let modified = told.field("last-modified").unwrap().to_owned();
    for (fields, status) in [
        (format!("If-None-Match: {etag}\r\n"), 304),
        (format!("If-None-Match: \"x\", W/{etag}\r\n"), 304),
        ("If-None-Match: \"x\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {modified}\r\n"), 304),
        ("If-Modified-Since: Mon, 01 Jan 1990 00:00:00 GMT\r\n".to_owned(), 200),
        (format!("If-Match: {etag}\r\n"), 200),
        ("If-Match: \"x\"\r\n".to_owned(), 412),
        ("If-Unmodified-Since: Mon, 01 Jan 1990 00:00:00 GMT\r\n".to_owned(), 412),
    ] {
        assert_eq!(ask(&site, "GET", "/assets/page.html", &fields).await.status, status, "{fields}");
    }
    fs::write(root.path().join("files/page.html"), "<p>another").unwrap();
    let told = ask(&site, "GET", "/assets/page.html", &format!("If-None-Match: {etag}\r\n")).await;
    assert_eq!((told.status, told.text()), (200, "<p>another"));
}

#[tokio::test]
async fn a_compressed_variant_goes_to_clients_that_take_it() {
    let root = tree();
    let site = site(&root, Policy::default()).await;
    for (accepted, coding, text) in [
        ("gzip", Some("gzip"), "as gzip"),
        ("gzip, br", Some("br"), "as brotli"),
        ("br;q=0, gzip;q=0.5", Some("gzip"), "as gzip"),
        ("identity", None, "<p>plain"),
    ] {
        let told = ask(&site, "GET", "/assets/page.html", &format!("Accept-Encoding: {accepted}\r\n")).await;
        assert_eq!((told.field("content-encoding"), told.text()), (coding, text), "{accepted}");
        assert_eq!(told.field("content-type"), Some("text/html"), "{accepted}");
        assert_eq!(told.field("vary"), Some("accept-encoding"), "{accepted}");
    }
    let told = ask(&site, "GET", "/assets/empty", "Accept-Encoding: br\r\n").await;
    assert_eq!((told.status, told.field("content-encoding")), (200, None));
}

#[tokio::test]
async fn a_file_needs_no_place_at_the_service() {
    let root = tree();
    let answer = async |_| std::future::pending().await;
    let files = root.path().join("files");
    let site = gate(one_at_a_time(), &[service(answer).await], |settings| {
        settings.types = vec![route("/assets/**", &files)];
    })
    .await;
    let mut busy = Client::connect(&site).await;
    busy.send("GET /other HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    assert_eq!(ask(&site, "GET", "/assets/page.html", "").await.status, 200);
    assert_eq!(site.status.snapshot().in_flight, 1);
}

#[tokio::test]
async fn a_file_that_shrinks_breaks_off_and_one_that_grows_ends_at_its_length() {
    let root = tree();
    let site = site(&root, Policy::default()).await;
    let large = root.path().join("files/large.bin");
    // More than all buffers on the way hold.
    fs::File::options().write(true).open(&large).unwrap().set_len(64 << 20).unwrap();
    for (length, whole) in [(65 << 20, true), (1 << 20, false)] {
        let mut client = Client::connect(&site).await;
        client.send("GET /assets/large.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        let told = client.head().await.unwrap();
        let expected: usize = told.field("content-length").unwrap().parse().unwrap();
        fs::File::options().write(true).open(&large).unwrap().set_len(length).unwrap();
        client.ends().await;
        let came = client.held();
        assert_eq!(came == expected, whole, "{came} of {expected}");
    }
}

#[tokio::test]
async fn files_go_over_http2_and_through_an_uplink() {
    let root = tree();
    let files = root.path().join("files");
    let answer = async |_| Response::new(full("the service"));
    let site = gate(Policy::default(), &[service(answer).await], |settings| {
        settings.types = vec![route("/**", &files)];
        let order = admission::EgressOrder::ShortestRemaining;
        settings.uplink = Some(UplinkSettings::new(UplinkRate::Set(80_000_000), order));
    })
    .await;
    let mut sender = http2::client(&site).await;
    let response = sender.send_request(http2::get("/large.bin")).await.unwrap();
    assert_eq!(response.headers()["content-length"], "300000");
    assert!(response.into_body().collect().await.unwrap().to_bytes() == pattern(300_000));
    let response = sender.send_request(http2::get("/empty")).await.unwrap();
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn curl_resumes_a_download() {
    let root = tree();
    let site = site(&root, Policy::default()).await;
    let part = root.path().join("part");
    fs::write(&part, &pattern(300_000)[..123_456]).unwrap();
    let url = format!("http://{}/assets/large.bin", site.address);
    let args = [OsStr::new("-sfC"), OsStr::new("-"), OsStr::new("-o"), part.as_os_str(), OsStr::new(&url)];
    let mut curl = Command::new("curl");
    curl.args(args);
    assert!(spawn_blocking(move || curl.status()).await.unwrap().unwrap().success());
    assert!(fs::read(&part).unwrap() == pattern(300_000));
}

#[test]
fn a_directory_that_is_none_is_told_from_one_that_can_be_served() {
    let root = tree();
    let examine = |name: &str| Files::examine(&root.path().join(name));
    examine("files").unwrap();
    assert!(examine("none").unwrap_err().to_string().ends_with("No such file or directory (os error 2)"));
    assert!(examine("secret").unwrap_err().to_string().ends_with("Not a directory (os error 20)"));
}
