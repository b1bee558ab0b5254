//! The data of a shop: always the same for a seed, with covers, and checked for what was spoiled.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use bookstore::schema::Table;
use support::{Site, check, populate, run, server, sizes};
use testbed::postgres::PrivateServer;

/// A number for each table that two tables share only if their rows are the same.
fn checksums(server: &PrivateServer) -> Vec<String> {
    let sum = |table: &str| {
        let sql = format!("SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {table} AS t");
        server.psql(&sql).expect("an answer")
    };
    Table::ALL.map(|table| format!("{} {}", table.name(), sum(table.name()))).to_vec()
}

#[test]
fn the_same_seed_makes_the_same_rows_and_another_one_others() {
    let server = server();
    let url = server.url();
    populate(&url, "200");
    let first = checksums(&server);
    let counts: Vec<&str> = first.iter().filter_map(|line| line.split('|').next()).collect();
    assert_eq!(counts[0], "address 5760");
    assert_eq!(counts[1], "author 50");
    assert_eq!(counts[2..6], ["cc_xacts 2592", "country 92", "customer 2880", "item 200"]);
    assert_eq!(counts[7], "orders 2592");
    let arguments =
        ["populate", "--database", &url, "--browsers", "1", "--items", "200", "--no-images", "--quiet"];
    let refused = run(&arguments);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("--replace") && said.contains("orders"), "{said}");
    assert_eq!(checksums(&server), first);
    let again = run(&[&arguments[..], &["--replace"]].concat());
    assert!(again.status.success());
    assert_eq!(checksums(&server), first);
    let other = run(&[&arguments[..], &["--replace", "--seed", "2"]].concat());
    assert!(other.status.success());
    let others = checksums(&server);
    for (first, other) in first.iter().zip(&others) {
        let is_the_same_always = first.starts_with("country") || first.starts_with("shopping_cart");
        assert_eq!(first == other, is_the_same_always, "{first}, {other}");
    }
    let (is_well, said) = check(&url);
    assert!(is_well, "{said}");
}

#[test]
fn covers_have_the_sizes_of_the_specification_and_nothing_else_is_served() {
    let server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let images = directory.path().join("images");
    let path = images.to_str().expect("a path");
    let url = server.url();
    let done = run(&["populate", "--database", &url, "--browsers", "1", "--items", "1000", "--images", path]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    // Nobody draws bars where there is no terminal.
    assert!(said.contains("customer") && said.contains("2880 rows") && !said.contains('\u{1b}'), "{said}");
    assert!(sizes(&images.join("thumbnail")).iter().all(|size| *size == 5 * 1024));
    let mut counts = BTreeMap::new();
    for size in sizes(&images.join("cover")) {
        *counts.entry(size / 1024).or_insert(0_i32) += 1;
    }
    let expected = [(5, 450), (10, 350), (50, 150), (100, 40), (250, 10)];
    assert_eq!(counts.len(), expected.len());
    for (size, expected) in expected {
        // Three standard deviations of a binomial distribution.
        let bound = 3.0 * (f64::from(expected) * (1.0 - f64::from(expected) / 1_000.0)).sqrt();
        assert!(f64::from((counts[&size] - expected).abs()) <= bound, "{counts:?}");
    }
    fs::write(directory.path().join("1.svg"), "secret").expect("a file");
    fs::write(images.join("1.svg"), "secret").expect("a file");
    symlink(directory.path(), images.join("up")).expect("a link");
    let site = Site::start(&url, &["--images", path]).with(directory);
    let mut browser = site.browser();
    let cover = browser.get("/images/cover/12.svg");
    assert_eq!((cover.status, cover.headers["content-type"].as_str()), (200, "image/svg+xml"));
    assert_eq!(cover.body.into_bytes(), fs::read(images.join("cover/12.svg")).expect("a file"));
    assert!(cover.headers["cache-control"].contains("max-age"));
    let known = browser.get_with("/images/cover/12.svg", &[("if-none-match", &cover.headers["etag"])]);
    assert_eq!((known.status, known.body.as_str()), (304, ""));
    let other = browser.get_with("/images/cover/12.svg", &[("if-none-match", "\"other\"")]);
    assert_eq!(other.status, 200);
    for path in [
        "/images/cover/1001.svg",
        "/images/cover/..%2F1.svg",
        "/images/cover/%2e%2e%2f1.svg",
        "/images/..%2f/1.svg",
        "/images/../1.svg",
        "/images/up/1.svg",
        "/images/./1.svg",
        "/images/cover/12.svg%00",
        "/images/cover/12",
        "/images/cover/",
    ] {
        let answer = browser.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.body.contains("secret"), "{path}");
    }
}

#[test]
fn books_share_a_smaller_number_of_covers() {
    let server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a path");
    let url = server.url();
    let arguments = ["populate", "--database", &url, "--browsers", "1", "--items", "100", "--quiet"];
    let done = run(&[&arguments[..], &["--images", path, "--covers", "7"]].concat());
    assert!(done.status.success());
    assert_eq!(sizes(&directory.path().join("cover")).len(), 7);
    let shown =
        server.psql("SELECT i_image FROM item WHERE i_id IN (7, 8, 100) ORDER BY i_id").expect("an answer");
    assert_eq!(shown, "cover/7.svg\ncover/1.svg\ncover/2.svg");
}

#[test]
fn a_check_says_which_rows_are_spoiled() {
    let server = server();
    let url = server.url();
    let empty = run(&["check", "--database", &url]);
    assert!(!empty.status.success());
    populate(&url, "100");
    let spoiled = [
        ("UPDATE item SET i_stock = -1 WHERE i_id = 7", "book 7: -1 in stock"),
        ("UPDATE item SET i_related2 = i_related1 WHERE i_id = 8", "book 8"),
        ("UPDATE orders SET o_sub_total = o_sub_total + 0.01 WHERE o_id = 9", "order 9: "),
        ("UPDATE orders SET o_tax = o_tax + 0.01, o_total = o_total + 0.01 WHERE o_id = 10", "order 10: "),
        ("UPDATE orders SET o_total = o_total - 1 WHERE o_id = 11", "order 11: "),
        ("DELETE FROM order_line WHERE ol_o_id = 12", "order 12"),
        ("UPDATE order_line SET ol_qty = 0 WHERE ol_o_id = 13 AND ol_id = 1", "order 13, line 1: 0 copies"),
        ("UPDATE order_line SET ol_i_id = 101 WHERE ol_o_id = 14 AND ol_id = 1", "of book 101"),
        ("DELETE FROM cc_xacts WHERE cx_o_id = 15", "order 15: 0 payments"),
        ("UPDATE cc_xacts SET cx_xact_amt = 0 WHERE cx_o_id = 16", "order 16: 1 payments"),
        ("DELETE FROM orders WHERE o_id = 17", "payment of order 17"),
        ("UPDATE orders SET o_c_id = 0 WHERE o_id = 18", "order 18"),
        ("UPDATE order_line SET ol_discount = 0.6 WHERE ol_o_id = 19", "order 19"),
        ("UPDATE customer SET c_uname = 'OG' WHERE c_id = 20", "customer 20"),
        ("INSERT INTO shopping_cart_line VALUES (21, 1, 1)", "cart 21: "),
        (
            "ALTER TABLE orders DROP CONSTRAINT orders_pkey; INSERT INTO orders SELECT * FROM orders WHERE o_id = 22",
            "order 22: 2 times",
        ),
    ];
    for (spoil, found) in spoiled {
        let (is_well, said) = check(&url);
        assert!(is_well, "before {spoil}: {said}");
        server.psql(spoil).expect("it is spoiled");
        let (is_well, said) = check(&url);
        assert!(!is_well && said.contains(found), "{spoil}: {said}");
        let arguments =
            ["populate", "--database", &url, "--browsers", "1", "--items", "100", "--no-images", "--quiet"];
        assert!(run(&[&arguments[..], &["--replace"]].concat()).status.success());
    }
}
