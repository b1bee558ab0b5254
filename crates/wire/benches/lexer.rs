//! How long it takes to read a text: lexed, described in one pass, fingerprinted. Figures:
//! `docs/reference/lexer.md`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wire::sql::lexer::Lexer;
use wire::sql::{Dialect, Touches, comment, describe, fingerprint, statements};

fn texts() -> Vec<(&'static str, String)> {
    let point = "SELECT id, name, price FROM items WHERE id = $1 AND shop = 'north' ORDER BY price DESC LIMIT 10 OFFSET 5";
    let tagged = "UPDATE \"orders\" SET \"state\" = 'paid', \"paid_at\" = now() WHERE \"orders\".\"id\" = 123456 \
                  /*action='pay',application='Shop',controller='orders'*/";
    let join = "SELECT o.id, o.total, c.name, count(*) AS n, sum(i.price * i.amount)::numeric(10, 2) AS value \
                FROM orders o JOIN customers c ON c.id = o.customer_id LEFT JOIN order_items i ON i.order_id = o.id \
                WHERE o.created_at BETWEEN $1 AND $2 AND c.country IN ('de', 'fr', 'it') AND o.state <> 'draft' \
                GROUP BY o.id, o.total, c.name HAVING count(*) > 3 ORDER BY value DESC NULLS LAST LIMIT 100";
    let batch = format!(
        "INSERT INTO events (id, kind, payload) VALUES {}(0, 'x', '{{}}')",
        "(1234, 'click', '{\"a\": 1}'), ".repeat(999)
    );
    vec![
        ("begin", "BEGIN".to_owned()),
        ("point read of 104 bytes", point.to_owned()),
        ("tagged update of 140 bytes", tagged.to_owned()),
        ("join of 380 bytes", join.to_owned()),
        ("insert of 1000 rows, 30 kB", batch),
    ]
}

fn read(criterion: &mut Criterion) {
    for (name, sql) in texts() {
        let sql = sql.as_bytes();
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(sql.len() as u64));
        group.bench_function("lexer", |bencher| {
            bencher.iter(|| {
                let mut lexer = Lexer::new(black_box(sql), Dialect::Postgres { standard_strings: true });
                let mut tokens = 0;
                while let Ok(Some(_)) = lexer.next_token() {
                    tokens += 1;
                }
                tokens
            });
        });
        group.bench_function("statements", |bencher| {
            bencher.iter(|| {
                statements(black_box(sql), true).filter(|one| one.touches != Touches::Anything).count()
            });
        });
        group.bench_function("fingerprint", |bencher| {
            let mut label = String::new();
            bencher.iter(|| fingerprint(black_box(sql), Dialect::POSTGRES, &mut label));
        });
        group.bench_function("tags", |bencher| {
            bencher.iter(|| comment::tags(black_box(sql), Dialect::POSTGRES));
        });
        group.bench_function("describe", |bencher| bencher.iter(|| describe(black_box(sql), true)));
        group.finish();
    }
}

criterion_group!(benches, read);
criterion_main!(benches);
