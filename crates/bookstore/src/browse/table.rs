//! The figures of a run, as a table for people.

use std::fmt::Write;

use super::summary::{Counts, Figures, Percentiles, Summary};

/// The tables, with a line break at the end.
pub(super) fn of(summary: &Summary) -> String {
    let mut text = String::new();
    let total = &summary.total;
    // Writing into a string can't fail.
    let _ = pages(&mut text, total)
        .and_then(|()| phases(&mut text, summary))
        .and_then(|()| remarks(&mut text, summary, total));
    text
}

fn pages(text: &mut String, total: &Figures) -> std::fmt::Result {
    head(text, "page", "share %")?;
    for page in &total.interactions {
        row(text, &page.name, &format!("{:.2}", page.share), &page.response, page.counts)?;
    }
    row(text, "all", "100.00", &total.response, total.counts)
}

fn phases(text: &mut String, summary: &Summary) -> std::fmt::Result {
    writeln!(text)?;
    head(text, "phase", "WIPS")?;
    for phase in &summary.phases {
        let load = match (phase.browsers, phase.sessions_per_second) {
            (Some(browsers), _) => format!("{browsers}"),
            (None, Some(rate)) => format!("{rate}/s"),
            (None, None) => String::new(),
        };
        let name = format!("{}: {load} {}", phase.name, phase.mix);
        let wips = if phase.is_counted { format!("{:.1}", phase.figures.wips) } else { "-".to_owned() };
        row(text, &name, &wips, &phase.figures.response, phase.figures.counts)?;
    }
    Ok(())
}

fn head(text: &mut String, name: &str, share: &str) -> std::fmt::Result {
    writeln!(
        text,
        "{name:<30} {share:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7}",
        "count", "mean ms", "p50", "p90", "p95", "p99", "rejected", "timed out", "failed", "wrong"
    )
}

fn row(text: &mut String, name: &str, share: &str, times: &Percentiles, counts: Counts) -> std::fmt::Result {
    write!(text, "{name:<30} {share:>8} {:>9}", counts.done)?;
    for time in [times.mean, times.p50, times.p90, times.p95, times.p99] {
        write!(text, " {:>9.1}", time * 1e3)?;
    }
    let Counts { rejected, timed_out, failed, wrong, .. } = counts;
    writeln!(text, " {rejected:>9} {timed_out:>9} {failed:>7} {wrong:>7}")
}

fn remarks(text: &mut String, summary: &Summary, total: &Figures) -> std::fmt::Result {
    let (all, present, little) = (&total.all_requests, &total.present, &total.little);
    writeln!(text)?;
    writeln!(
        text,
        "{:.1} interactions/s (WIPS); all {} requests, with all the time that was waited: {:.1} ms, 90 % within {:.1} ms",
        total.wips,
        all.count,
        all.mean * 1e3,
        all.p90 * 1e3
    )?;
    writeln!(
        text,
        "{:.1} browsers present ({} at most), {} visits began; thought {:.2} s on average; Little's residual {:+.1} %",
        present.mean,
        present.most,
        present.sessions,
        little.think,
        little.residual * 100.0
    )?;
    if summary.settings.image_connections > 0 {
        let images = total.images;
        writeln!(
            text,
            "{} images ({:.1} MB), {} rejected, {} timed out, {} failed; pages with their images took {:.1} ms",
            images.done,
            images.bytes as f64 / 1e6,
            images.rejected,
            images.timed_out,
            images.failed,
            total.complete.mean * 1e3
        )?;
    }
    if total.busy > 0 {
        writeln!(text, "{} of the rejected were turned away by the shop itself", total.busy)?;
    }
    if total.counts.unfinished > 0 {
        writeln!(text, "{} requests were still waited for at the end", total.counts.unfinished)?;
    }
    for complaint in &summary.complaints {
        writeln!(text, "{} times {}", complaint.count, complaint.what)?;
    }
    let client = &total.client;
    writeln!(
        text,
        "the client used {:.0} % of its processor time and was {:.1} ms late on average",
        client.processor_share * 100.0,
        client.lateness.mean * 1e3
    )?;
    for reason in &client.bottleneck {
        writeln!(text, "the client was the bottleneck: {reason}")?;
    }
    Ok(())
}
