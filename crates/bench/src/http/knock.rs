//! Clients that connect, are turned away, and connect again.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::closed::Counted;
use super::on_one_thread;
use crate::Error;
use crate::load::CpuMeter;

/// Has so many clients connect to a port again and again, and measures what each connection costs those
/// processes that close it.
///
/// # Errors
/// If nobody was turned away.
pub(crate) async fn knock(
    port: u16,
    clients: usize,
    window: Duration,
    measured: Vec<u32>,
) -> Result<Counted, Error> {
    on_one_thread(None, async move || {
        let closed = Rc::new(Cell::new(0_u64));
        for _ in 0..clients {
            let closed = Rc::clone(&closed);
            tokio::task::spawn_local(async move {
                loop {
                    if let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                        // Closed or reset: both are an answer.
                        let _ = stream.read(&mut [0]).await;
                    }
                    closed.set(closed.get() + 1);
                    tokio::task::yield_now().await;
                }
            });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (before, meter, start) = (closed.get(), CpuMeter::start(&measured), Instant::now());
        tokio::time::sleep(window).await;
        let times = closed.get() - before;
        let (used, seconds) = (meter.used().as_secs_f64(), start.elapsed().as_secs_f64());
        if times == 0 {
            return Err(Error::Experiment("nobody was turned away".to_owned()));
        }
        Ok(Counted { rate: times as f64 / seconds, cost: used / times as f64 })
    })
    .await
}
