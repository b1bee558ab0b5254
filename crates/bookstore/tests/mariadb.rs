//! The shop over MariaDB: filled as over PostgreSQL, every page in every mode, books that balance.

mod support;

use support::{CUSTOMERS, NEWCOMER, Site, check, populate, run};
use testbed::mariadb::PrivateMariadb;

fn url(server: &PrivateMariadb) -> String {
    let (user, password) = (server.user(), server.password());
    format!("mysql://{user}:{password}@127.0.0.1:{}/{}", server.port(), server.database())
}

#[test]
fn every_page_is_served_in_every_mode_and_the_books_balance() {
    let server = PrivateMariadb::start(&[]).expect("a private MariaDB");
    let url = url(&server);
    populate(&url, "1000");
    let (is_well, said) = check(&url);
    assert!(is_well && said.contains("0 orders were placed"), "{said}");
    let modes: [&[&str]; 5] = [
        &[],
        &["--transactions", "statement"],
        &["--locking", "tables", "--best-sellers", "scan", "--bought-together", "scan"],
        &["--locking", "rows", "--isolation", "serializable"],
        &["--locking", "application", "--connect-per-request"],
    ];
    for mode in modes {
        let site = Site::start(&url, mode);
        let mut browser = site.browser();
        browser.get("/?customer=5").is("HOME");
        browser.get("/new?subject=ARTS").is("NEWP");
        assert!(browser.get("/best?subject=arts").is("BESS").body.contains("href=\"/books/"), "{mode:?}");
        for query in ["by=title&q=Bababababa", "by=author&q=Bababababa", "by=subject&q=TRAVEL"] {
            let found = browser.get(&format!("/search/results?{query}"));
            assert!(found.is("SRES").body.contains("href=\"/books/"), "{mode:?}, {query}");
        }
        browser.post("/cart", &[("add", "7")]).is("SHOP");
        let cart = browser.post("/cart", &[("add", "9"), ("quantity.7", "3")]);
        assert!(cart.is("SHOP").body.contains("data-line=\"7:3\""), "{mode:?}: {}", cart.body);
        browser.post("/cart", &[("add", "9")]).is("SHOP");
        browser.sign_in(5).is("BUYR");
        let bought = browser.buy();
        let order = bought.is("BUYC").attribute("data-order").expect("a number").to_owned();
        let shown = browser.post("/orders/last", &[("uname", "SE"), ("password", "se")]);
        assert_eq!(shown.is("ORDD").attribute("data-order"), Some(order.as_str()), "{mode:?}");
        assert_eq!(shown.attribute("data-total"), bought.attribute("data-total"), "{mode:?}");
        let fields = [("cost", "12.50"), ("image", "cover/3.svg"), ("thumbnail", "/images/thumbnail/3.svg")];
        browser.get("/admin/books/7").is("ADMR");
        browser.post("/admin/books/7/change", &fields).is("ADMC");
        assert!(browser.get("/books/7").is("PROD").body.contains("$12.50"), "{mode:?}");
        let mut newcomer = site.browser();
        newcomer.post("/cart", &[("add", "3")]).is("SHOP");
        newcomer.post("/checkout", &NEWCOMER).is("BUYR");
        assert!(newcomer.cookies["customer"].parse::<u32>().is_ok_and(|customer| customer > CUSTOMERS));
        newcomer.buy().is("BUYC");
    }
    let (is_well, said) = check(&url);
    assert!(is_well && said.contains("10 orders were placed"), "{said}");
    server.query("UPDATE item SET i_stock = -1 WHERE i_id = 1").expect("a change");
    let (is_well, said) = check(&url);
    assert!(!is_well && said.contains("book 1: -1 in stock"), "{said}");
}

#[test]
fn a_shop_that_is_there_is_dropped_only_where_that_is_said() {
    let server = PrivateMariadb::start(&[]).expect("a private MariaDB");
    let url = url(&server);
    let said = run(&["check", "--database", &url]);
    assert!(String::from_utf8_lossy(&said.stderr).contains("holds no shop"), "{said:?}");
    populate(&url, "200");
    let counts = "SELECT (SELECT count(*) FROM address), (SELECT count(*) FROM orders), (SELECT count(*) FROM table_lock)";
    assert_eq!(server.query(counts).expect("an answer"), "5760\t2592\t10");
    let fill =
        ["populate", "--database", &url, "--browsers", "1", "--items", "200", "--no-images", "--quiet"];
    let refused = String::from_utf8_lossy(&run(&fill).stderr).into_owned();
    assert!(refused.contains("--replace") && refused.contains("orders"), "{refused}");
    assert!(run(&[&fill[..], &["--replace"]].concat()).status.success());
    assert_eq!(server.query(counts).expect("an answer"), "5760\t2592\t10");
}
