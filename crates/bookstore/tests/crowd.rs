//! Crowds of buyers: whatever is locked, every order is right, and none is lost or placed twice.

mod support;

use std::collections::HashSet;
use std::sync::{Arc, Barrier};
use std::thread;

use support::{Answer, Browser, CUSTOMERS, NEWCOMER, Site, check, populate, server, until};
use testbed::postgres::PrivateServer;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

/// Buyers at the same time.
const BUYERS: u32 = 200;
/// The books that all of them want.
const WANTED: u32 = 12;

/// One buyer's visit; the answer to its order, and how many copies it has bought of which books.
fn visit(mut browser: Browser, buyer: u32) -> (Answer, Vec<(u32, u32)>) {
    let customer = 1 + buyer * 13 % CUSTOMERS;
    browser.get(&format!("/?customer={customer}")).is("HOME");
    let books = [1 + buyer % WANTED, 1 + buyer * 7 % WANTED, 1 + buyer / 7 % WANTED];
    let mut copies = Vec::new();
    for book in books {
        browser.post("/cart", &[("add", &book.to_string())]).is("SHOP");
        copies.retain(|(other, _)| *other != book);
        copies.push((book, 1 + buyer % 30));
    }
    let fields: Vec<(String, String)> =
        copies.iter().map(|(book, copies)| (format!("quantity.{book}"), copies.to_string())).collect();
    let fields: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    browser.post("/cart", &fields).is("SHOP");
    match buyer % 10 {
        0 => browser.post("/checkout", &NEWCOMER).is("BUYR"),
        _ => browser.sign_in(customer).is("BUYR"),
    };
    if buyer % 5 == 0 {
        let (book, cost) = (1 + buyer % WANTED, format!("{}.99", 5 + buyer % 40));
        let fields = [("cost", cost.as_str()), ("image", "cover/1.svg"), ("thumbnail", "thumbnail/1.svg")];
        browser.post(&format!("/admin/books/{book}/change"), &fields).is("ADMC");
    }
    if buyer % 4 == 0 {
        browser.get("/best?subject=ARTS").is("BESS");
        browser.get("/search/results?by=title&q=Ba").is("SRES");
    }
    (browser.buy(), copies)
}

/// A crowd buys; every order must be right to the cent, and every copy taken from the stock.
fn crowd(server: &PrivateServer, arguments: &[&str]) {
    server.psql("CREATE TABLE before AS SELECT i_id, i_stock FROM item").expect("the stock is kept");
    let timeout = ["--connection-timeout", "60s"];
    let site = Site::start(&server.url(), &[arguments, &timeout].concat());
    let start = Arc::new(Barrier::new(BUYERS as usize));
    let threads: Vec<_> = (0..BUYERS)
        .map(|buyer| {
            let (browser, start) = (site.browser(), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                visit(browser, buyer)
            })
        })
        .collect();
    let mut orders = HashSet::new();
    let mut sold = [0; WANTED as usize + 1];
    for thread in threads {
        let (answer, copies) = thread.join().expect("a visit");
        let order: u32 =
            answer.is("BUYC").attribute("data-order").expect("a number").parse().expect("a number");
        assert!(orders.insert(order), "{order} twice");
        for (book, copies) in copies {
            sold[book as usize] += copies;
        }
    }
    let (is_well, said) = check(&server.url());
    assert!(is_well, "{arguments:?}: {said}");
    assert!(said.contains(&format!("{BUYERS} orders were placed")), "{arguments:?}: {said}");
    for (book, sold) in sold.iter().enumerate().skip(1) {
        let sql = "SELECT before.i_stock - item.i_stock FROM before JOIN item USING (i_id) WHERE i_id =";
        let less: i64 = server.psql(&format!("{sql} {book}")).expect("an answer").parse().expect("a number");
        // The stock is filled up by 21 as often as needed.
        let bought = i64::from(*sold) - less;
        assert!(bought >= 0 && bought % 21 == 0, "{arguments:?}: book {book}, {sold} sold, {less} less");
    }
}

/// A crowd in a fresh shop.
fn crowd_in_a_fresh_shop(arguments: &[&str]) {
    let server = server();
    populate(&server.url(), "100");
    crowd(&server, arguments);
}

#[test]
fn a_crowd_is_served_right_without_locks() {
    crowd_in_a_fresh_shop(&["--locking", "none"]);
}

#[test]
fn a_crowd_is_served_right_with_row_locks() {
    crowd_in_a_fresh_shop(&["--locking", "rows"]);
}

#[test]
fn a_crowd_is_served_right_with_table_locks() {
    crowd_in_a_fresh_shop(&["--locking", "tables"]);
}

#[test]
fn a_crowd_is_served_right_with_locks_of_the_application() {
    crowd_in_a_fresh_shop(&["--locking", "application"]);
}

#[test]
fn a_crowd_is_served_right_statement_by_statement() {
    crowd_in_a_fresh_shop(&["--transactions", "statement", "--locking", "none"]);
}

#[test]
fn a_crowd_is_served_right_by_serializable_transactions_that_are_retried() {
    crowd_in_a_fresh_shop(&["--isolation", "serializable", "--count-orders", "off", "--retries", "1000"]);
}

#[test]
fn one_cart_is_bought_once_however_often_the_button_is_pressed() {
    let server = server();
    populate(&server.url(), "100");
    for locking in ["none", "rows", "tables", "application"] {
        let site = Site::start(&server.url(), &["--locking", locking]);
        let mut browser = site.browser();
        browser.post("/cart", &[("add", "7")]).is("SHOP");
        browser.sign_in(5).is("BUYR");
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let mut browser = browser.clone();
                thread::spawn(move || browser.buy().status)
            })
            .collect();
        let mut statuses: Vec<u16> =
            threads.into_iter().map(|thread| thread.join().expect("an answer")).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409], "{locking}");
    }
    let (is_well, said) = check(&server.url());
    assert!(is_well && said.contains("4 orders were placed"), "{said}");
}

/// Another client of the database, which can keep a transaction open.
fn other(server: &PrivateServer, runtime: &Runtime) -> Client {
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client
    })
}

/// Waits until somebody of the shop waits for a lock.
fn until_locked_out(server: &PrivateServer) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bookstore' AND wait_event_type = 'Lock'";
    until("the shop waits for a lock", || server.psql(sql).expect("an answer") != "0");
}

#[test]
fn an_order_that_collided_is_placed_again_or_refused_as_told() {
    let server = server();
    populate(&server.url(), "100");
    let runtime = Runtime::new().expect("a runtime");
    for (retries, expected) in [("0", 503), ("3", 200)] {
        let site = Site::start(&server.url(), &["--isolation", "repeatable-read", "--retries", retries]);
        let mut browser = site.browser();
        browser.post("/cart", &[("add", "7")]).is("SHOP");
        browser.sign_in(5).is("BUYR");
        let other = other(&server, &runtime);
        let update = "BEGIN; UPDATE item SET i_stock = i_stock WHERE i_id = 7";
        runtime.block_on(other.batch_execute(update)).expect("a row that is locked");
        let mut buyer = browser.clone();
        let buying = thread::spawn(move || buyer.buy());
        until_locked_out(&server);
        runtime.block_on(other.batch_execute("COMMIT")).expect("the row has changed");
        let answer = buying.join().expect("an answer");
        assert_eq!(answer.status, expected, "{}", answer.body);
        if expected == 503 {
            answer.fails(503, "busy");
            // Nothing is left of it, and the connection is as good as before.
            browser.buy().is("BUYC");
        }
    }
    let (is_well, said) = check(&server.url());
    assert!(is_well && said.contains("2 orders were placed"), "{said}");
}

#[test]
fn who_gets_no_connection_in_time_is_refused_and_so_is_one_too_many() {
    let server = server();
    populate(&server.url(), "100");
    let runtime = Runtime::new().expect("a runtime");
    let other = other(&server, &runtime);
    let lock = "BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE";
    let late = Site::start(&server.url(), &["--connections", "1", "--connection-timeout", "100ms"]);
    let full =
        Site::start(&server.url(), &["--connections", "1", "--connection-timeout", "60s", "--waiting", "1"]);
    for (site, waiting) in [(&late, 0), (&full, 1)] {
        // A machine that is busy may take longer to connect than the shop has patience for.
        until("the shop has its connection", || site.browser().get("/").status == 200);
        runtime.block_on(other.batch_execute(lock)).expect("a table that is locked");
        let get = |mut browser: Browser| thread::spawn(move || browser.get("/books/7"));
        let served = get(site.browser());
        until_locked_out(&server);
        // Behind the one that has the only connection others wait, as many as may.
        let mut queued: Vec<_> = (0..waiting).map(|_| get(site.browser())).collect();
        if waiting == 0 {
            site.browser().get("/books/7").fails(503, "busy");
        } else {
            // Two more: whichever comes to the queue last is refused at once.
            queued.push(get(site.browser()));
            until("one of two is refused", || queued.iter().any(thread::JoinHandle::is_finished));
        }
        runtime.block_on(other.batch_execute("COMMIT")).expect("the lock is released");
        served.join().expect("an answer").is("PROD");
        let mut statuses: Vec<u16> =
            queued.into_iter().map(|one| one.join().expect("an answer").status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 503][..2 * waiting]);
    }
}

#[test]
fn a_page_whose_visitor_has_left_leaves_nothing_open() {
    use std::io::Write;
    let server = server();
    populate(&server.url(), "100");
    let runtime = Runtime::new().expect("a runtime");
    let other = other(&server, &runtime);
    let site = Site::start(&server.url(), &["--connections", "1"]);
    site.browser().get("/").is("HOME");
    runtime.block_on(other.batch_execute("BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE")).expect("a lock");
    let address = site.address.strip_prefix("http://").expect("an address");
    let mut socket = std::net::TcpStream::connect(address).expect("a connection");
    socket.write_all(b"GET /books/7 HTTP/1.1\r\nHost: shop\r\n\r\n").expect("a request");
    until_locked_out(&server);
    drop(socket);
    runtime.block_on(other.batch_execute("COMMIT")).expect("the lock is released");
    site.browser().get("/books/7").is("PROD");
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bookstore' AND state LIKE 'idle in%'";
    assert_eq!(server.psql(sql).expect("an answer"), "0");
}

/// What the shop's statement that waits for a lock begins with.
fn locked_out_statement(server: &PrivateServer) -> String {
    until_locked_out(server);
    let sql = "SELECT query FROM pg_stat_activity WHERE application_name = 'bookstore' AND wait_event_type = 'Lock'";
    server.psql(sql).expect("an answer")
}

#[test]
fn every_way_of_locking_locks_what_it_says() {
    let server = server();
    populate(&server.url(), "100");
    let runtime = Runtime::new().expect("a runtime");
    let other = other(&server, &runtime);
    let hold = |what: &str| runtime.block_on(other.batch_execute(&format!("BEGIN; {what}"))).expect("a lock");
    let release = || runtime.block_on(other.batch_execute("COMMIT")).expect("the lock is released");
    let row = "SELECT i_id FROM item WHERE i_id = 7 FOR UPDATE";
    for locking in ["none", "rows", "tables", "application"] {
        // Only a request that waits for the application is to lose patience.
        let patience = if locking == "application" { "1s" } else { "60s" };
        let arguments = ["--locking", locking, "--connection-timeout", patience];
        let site = Site::start(&server.url(), &arguments);
        let mut buyer = site.browser();
        until("the shop has a connection", || buyer.post("/cart", &[("add", "7")]).status == 200);
        buyer.sign_in(5).is("BUYR");
        // Plain reading doesn't mind writers; a lock on the whole table does.
        hold("LOCK TABLE author IN ROW EXCLUSIVE MODE");
        let mut reader = site.browser();
        let reading = thread::spawn(move || reader.get("/books/9"));
        if locking == "tables" {
            assert!(locked_out_statement(&server).starts_with("LOCK TABLE author IN SHARE MODE"));
        } else {
            until("the page is read", || reading.is_finished());
        }
        release();
        reading.join().expect("an answer").is("PROD");
        // A buyer who waits for the book's row in the database.
        hold(row);
        let buying = thread::spawn(move || buyer.buy());
        let statement = locked_out_statement(&server);
        match locking {
            "rows" => assert!(statement.contains("FOR UPDATE"), "{statement}"),
            "tables" => assert!(statement.starts_with("LOCK TABLE item IN EXCLUSIVE MODE"), "{statement}"),
            _ => assert!(statement.starts_with("UPDATE item"), "{statement}"),
        }
        // Meanwhile a page about books waits for the application, if the application locks them.
        let mut reader = site.browser();
        match locking {
            "application" => reader.get("/books/9").fails(503, "busy"),
            // Behind a lock of a table that is waited for, others wait as well.
            "tables" => {}
            _ => drop(reader.get("/books/9").is("PROD")),
        }
        release();
        buying.join().expect("an answer").is("BUYC");
    }
}
