//! Every page in every mode, what goes wrong with them, and what their statements say about themselves.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bookstore::interaction::Interaction;
use support::{Browser, CUSTOMERS, NEWCOMER, Site, populate, server, until};
use testbed::pgbouncer::{PgBouncer, Prepared};

/// Visits all fourteen pages and calls `after` behind each.
fn visit_all(browser: &mut Browser, mut after: impl FnMut(Interaction)) {
    let mut seen = Vec::new();
    let mut at = |interaction: Interaction| {
        seen.push(interaction);
        after(interaction);
    };
    let home = browser.get("/?customer=5");
    home.is("HOME");
    assert!(home.body.contains("Welcome back"));
    assert_eq!(home.body.matches("src=\"/images/thumbnail/").count(), 5);
    at(Interaction::Home);
    assert!(browser.get("/new?subject=ARTS").is("NEWP").body.contains("href=\"/books/"));
    at(Interaction::NewProducts);
    assert!(browser.get("/best?subject=arts").is("BESS").body.contains("href=\"/books/"));
    at(Interaction::BestSellers);
    browser.get("/books/7").is("PROD");
    at(Interaction::ProductDetail);
    browser.get("/search").is("SREQ");
    at(Interaction::SearchRequest);
    for query in ["by=title&q=Bababababa", "by=author&q=Bababababa", "by=subject&q=TRAVEL"] {
        let found = browser.get(&format!("/search/results?{query}"));
        assert!(found.is("SRES").body.contains("href=\"/books/"), "{query}");
    }
    at(Interaction::SearchResults);
    browser.post("/cart", &[("add", "7")]).is("SHOP");
    let cart = browser.post("/cart", &[("add", "9"), ("quantity.7", "3")]);
    assert!(cart.is("SHOP").body.contains("data-line=\"7:3\"") && cart.body.contains("data-line=\"9:1\""));
    assert_eq!(browser.cookies["copies"], "4");
    at(Interaction::ShoppingCart);
    assert!(browser.get("/register").is("CREG").body.contains("value=\"SE\""));
    at(Interaction::CustomerRegistration);
    browser.sign_in(5).is("BUYR");
    at(Interaction::BuyRequest);
    let bought = browser.buy();
    let order = bought.is("BUYC").attribute("data-order").expect("a number").to_owned();
    at(Interaction::BuyConfirm);
    browser.get("/orders").is("ORDI");
    at(Interaction::OrderInquiry);
    let shown = browser.post("/orders/last", &[("uname", "SE"), ("password", "se")]);
    assert_eq!(shown.is("ORDD").attribute("data-order"), Some(order.as_str()));
    assert_eq!(shown.attribute("data-total"), bought.attribute("data-total"));
    at(Interaction::OrderDisplay);
    browser.get("/admin/books/7").is("ADMR");
    at(Interaction::AdminRequest);
    let fields = [("cost", "12.50"), ("image", "cover/3.svg"), ("thumbnail", "/images/thumbnail/3.svg")];
    browser.post("/admin/books/7/change", &fields).is("ADMC");
    at(Interaction::AdminConfirm);
    assert_eq!(seen, Interaction::ALL);
    let book = browser.get("/books/7");
    assert!(book.is("PROD").body.contains("$12.50") && book.body.contains("src=\"/images/cover/3.svg\""));
}

/// Somebody registers, and buys.
fn register_and_buy(browser: &mut Browser) {
    browser.post("/cart", &[("add", "3")]).is("SHOP");
    let request = browser.post("/checkout", &NEWCOMER);
    assert!(request.is("BUYR").body.contains("O'Hara &lt;b&gt;"));
    let customer: u32 = browser.cookies["customer"].parse().expect("a number");
    assert!(customer > CUSTOMERS);
    browser.buy().is("BUYC");
    let (name, password) = (bookstore::names::user_name(customer), bookstore::names::password(customer));
    let shown = browser.post("/orders/last", &[("uname", &name), ("password", &password)]);
    assert!(shown.is("ORDD").attribute("data-order").is_some());
}

#[test]
fn every_page_is_served_in_every_mode() {
    let server = server();
    populate(&server.url(), "100");
    for transactions in ["page", "statement"] {
        for locking in ["none", "rows", "tables", "application"] {
            let site = Site::start(&server.url(), &["--transactions", transactions, "--locking", locking]);
            visit_all(&mut site.browser(), |_| {});
            register_and_buy(&mut site.browser());
        }
    }
    for arguments in
        [&["--connect-per-request"][..], &["--isolation", "serializable", "--count-orders", "off"]]
    {
        let site = Site::start(&server.url(), arguments);
        visit_all(&mut site.browser(), |_| {});
        register_and_buy(&mut site.browser());
    }
    let (is_well, said) = support::check(&server.url());
    assert!(is_well, "{said}");
    assert!(said.contains("20 orders were placed"), "{said}");
}

#[test]
fn statements_are_tagged_with_their_route_and_without_tags_are_not() {
    let server = server();
    populate(&server.url(), "100");
    let last_statement = || {
        server
            .psql("SELECT query FROM pg_stat_activity WHERE application_name = 'bookstore'")
            .expect("an answer")
    };
    for transactions in ["page", "statement"] {
        let site = Site::start(&server.url(), &["--connections", "1", "--transactions", transactions]);
        visit_all(&mut site.browser(), |interaction| {
            if interaction == Interaction::OrderInquiry {
                return; // It asks the database nothing.
            }
            let route = interaction.route().replace('/', "%2F").replace('{', "%7B").replace('}', "%7D");
            let said = last_statement();
            assert!(said.ends_with(&format!(" /*route='{route}'*/")), "{interaction:?}: {said}");
        });
    }
    let site = Site::start(&server.url(), &["--connections", "1", "--route-tags", "off"]);
    visit_all(&mut site.browser(), |_| {
        let said = last_statement();
        assert!(!said.is_empty() && !said.contains("/*"), "{said}");
    });
}

#[test]
fn without_prepared_statements_pages_are_right_through_a_pooler_that_follows_none() {
    let server = server();
    populate(&server.url(), "100");
    // Two connections of the server's for eight of the shop's: a transaction's next one is on another.
    let pooler = PgBouncer::start(&server, 2, 100, Prepared::Left).expect("a PgBouncer");
    assert!(!pooler.prepares());
    let url = server.url_through(pooler.port());
    for transactions in ["page", "statement"] {
        let arguments =
            ["--connections", "8", "--prepared-statements", "off", "--transactions", transactions];
        let site = Site::start(&url, &arguments);
        thread::scope(|scope| {
            scope.spawn(|| visit_all(&mut site.browser(), |_| {}));
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut browser = site.browser();
                    for _ in 0..20 {
                        browser.get("/books/7").is("PROD");
                        browser.get("/new?subject=ARTS").is("NEWP");
                        browser.get("/search/results?by=subject&q=TRAVEL").is("SRES");
                    }
                });
            }
        });
    }
}

#[test]
fn best_sellers_are_the_same_by_index_and_by_scan() {
    let server = server();
    populate(&server.url(), "100");
    let listed = |by: &str| {
        let site = Site::start(&server.url(), &["--best-sellers", by]);
        let page = site.browser().get("/best?subject=ARTS");
        page.is("BESS");
        let (list, _) = page.body.split_once("</ol>").expect("a list");
        let books = list
            .split("href=\"/books/")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap_or_default().to_owned());
        let mut books: Vec<String> = books.collect();
        // Those that sold equally well come in any order.
        books.sort();
        books
    };
    let by_index = listed("index");
    assert!(by_index.len() > 1);
    assert_eq!(by_index, listed("scan"));
}

#[test]
fn a_book_is_changed_by_index_and_by_scan() {
    let server = server();
    populate(&server.url(), "100");
    for by in ["index", "scan"] {
        let site = Site::start(&server.url(), &["--bought-together", by]);
        let fields = [("cost", "12.50"), ("image", "cover/3.svg"), ("thumbnail", "thumbnail/3.svg")];
        site.browser().post("/admin/books/7/change", &fields).is("ADMC");
    }
}

#[test]
fn an_interaction_without_a_pool_has_a_connection_of_its_own() {
    let server = server();
    populate(&server.url(), "100");
    let sessions = || -> u32 {
        let sql = "SELECT pg_stat_clear_snapshot(); SELECT sessions FROM pg_stat_database WHERE datname = 'postgres'";
        server.psql(sql).expect("an answer").trim().parse().expect("a number")
    };
    let site = Site::start(&server.url(), &["--connect-per-request"]);
    let mut browser = site.browser();
    let before = sessions();
    for _ in 0..20 {
        browser.get("/books/7").is("PROD");
    }
    // Sessions are counted when they have ended and said so, some time after the page.
    until("twenty sessions were made", || sessions() >= before + 20);
}

#[test]
fn what_goes_wrong_is_said_by_status_and_word() {
    let server = server();
    populate(&server.url(), "100");
    let site = Site::start(&server.url(), &[]);
    let mut browser = site.browser();
    for path in [
        "/books/0",
        "/books/101",
        "/books/x",
        "/books/99999999999",
        "/best?subject=POETRY",
        "/nowhere",
        "/images/cover/7.svg",
    ] {
        browser.get(path).fails(404, "not-found");
    }
    browser.post("/cart", &[("add", "101")]).fails(404, "not-found");
    let nobody = [("uname", "SE"), ("password", "wrong")];
    browser.post("/orders/last", &nobody).fails(403, "wrong-password");
    browser.post("/orders/last", &[("uname", "nobody"), ("password", "x")]).fails(403, "wrong-password");
    browser.post("/checkout", &[("returning", "yes")]).fails(400, "nonsense");
    for path in [
        "/new",
        "/search/results?by=color&q=red",
        "/search/results?by=title",
        "/search/results?by=subject&q=x",
    ] {
        browser.get(path).fails(400, "nonsense");
    }
    for (name, value) in
        [("quantity.7", "many"), ("quantity.7", "-1"), ("quantity.7", "100"), ("quantity.x", "1")]
    {
        browser.post("/cart", &[(name, value)]).fails(400, "nonsense");
    }
    for change in [
        ("birth_date", "1990-02-30"),
        ("country", "Atlantis"),
        ("email", ""),
        ("first_name", "a name that is too long"),
    ] {
        let mut fields = NEWCOMER.to_vec();
        fields.iter_mut().filter(|field| field.0 == change.0).for_each(|field| field.1 = change.1);
        browser.post("/checkout", &fields).fails(400, "nonsense");
    }
    for cost in ["", "free", "-1", "0"] {
        let fields = [("cost", cost), ("image", "cover/3.svg"), ("thumbnail", "thumbnail/3.svg")];
        browser.post("/admin/books/7/change", &fields).fails(400, "nonsense");
    }
    let fields = [("cost", "1"), ("image", "../../3.svg"), ("thumbnail", "thumbnail/3.svg")];
    browser.post("/admin/books/7/change", &fields).fails(400, "nonsense");
    browser.cookies.clear();
    browser.buy().fails(400, "nonsense");
    browser.sign_in(5).fails(409, "empty-cart");
    browser.post("/cart", &[("add", "7")]).is("SHOP");
    browser.sign_in(5).is("BUYR");
    browser.buy().is("BUYC");
    browser.buy().fails(409, "empty-cart");
    server.psql("ALTER TABLE author RENAME TO lost").expect("the table is gone");
    let failed = browser.get("/books/7");
    failed.fails(500, "failed");
    let said = failed.body.to_lowercase();
    assert!(
        ["select i_id", "from item", "relation", "42p01"].iter().all(|word| !said.contains(word)),
        "{said}"
    );
    server.psql("ALTER TABLE lost RENAME TO author").expect("the table is back");
    browser.get("/books/7").is("PROD");
    let (is_well, said) = support::check(&server.url());
    assert!(is_well, "{said}");
}

#[test]
fn a_cart_that_would_be_empty_gets_a_book() {
    let server = server();
    populate(&server.url(), "100");
    let site = Site::start(&server.url(), &[]);
    let mut browser = site.browser();
    let first = browser.get("/cart");
    let line = first.is("SHOP").attribute("data-line").expect("a line").to_owned();
    let (book, copies) = line.split_once(':').expect("a book and its copies");
    assert_eq!(copies, "1");
    let again = browser.post("/cart", &[(&format!("quantity.{book}"), "0")]);
    assert_eq!(again.is("SHOP").body.matches("data-line=").count(), 1);
    // A cart that nobody has made is another one.
    browser.cookies.insert("cart".to_owned(), "999".to_owned());
    browser.get("/cart").is("SHOP");
    assert_ne!(browser.cookies["cart"], "999");
}

#[test]
fn programs_are_told_the_scale_and_that_the_shop_is_there() {
    let server = server();
    populate(&server.url(), "100");
    let site = Site::start(&server.url(), &[]);
    let mut browser = site.browser();
    assert_eq!(browser.get("/scale").body, "{\"items\":100,\"customers\":2880}");
    drop(server);
    let healthy = browser.get("/healthz");
    assert_eq!((healthy.status, healthy.body.as_str()), (200, "ok\n"));
    browser.get("/scale").fails(503, "busy");
}

#[test]
fn a_database_that_is_away_makes_the_shop_busy_until_it_is_back() {
    let mut server = server();
    populate(&server.url(), "100");
    for arguments in [&[][..], &["--connect-per-request"]] {
        let site = Site::start(&server.url(), arguments);
        let mut browser = site.browser();
        browser.get("/books/7").is("PROD");
        let done = Arc::new(AtomicBool::new(false));
        let watching = thread::spawn({
            let (done, mut browser) = (Arc::clone(&done), browser.clone());
            move || {
                while !done.load(Ordering::Relaxed) {
                    let answer = browser.get("/books/7");
                    assert!(
                        answer.status == 200 || answer.status == 503,
                        "{}: {}",
                        answer.status,
                        answer.body
                    );
                }
            }
        });
        server.restart(testbed::postgres::Stop::Immediate).expect("it starts again");
        until("the shop serves again", || browser.get("/books/7").status == 200);
        done.store(true, Ordering::Relaxed);
        watching.join().expect("only 200 and 503");
    }
    let site = Site::start(&server.url(), &[]);
    let mut browser = site.browser();
    browser.get("/").is("HOME");
    drop(server);
    let refused = browser.get("/");
    refused.fails(503, "busy");
    assert_eq!(refused.headers["retry-after"], "2");
    assert!(!refused.body.to_lowercase().contains("sql"), "{}", refused.body);
    browser.get("/orders").is("ORDI");
}

#[test]
fn a_shop_that_is_told_to_end_ends_well() {
    let server = server();
    populate(&server.url(), "100");
    let mut site = Site::start(&server.url(), &[]);
    // A connection that is kept, and idle.
    let mut idle = site.browser();
    idle.get("/").is("HOME");
    site.tell_to_end();
    let mut status = None;
    until("the shop has ended", || {
        status = site.ended();
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}
