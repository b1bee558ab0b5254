//! What is typed into the console.

use super::super::console::{Format, result_formats};
use crate::console::words::{parse, split};

/// Commands, one after the other, and in what form their values are wanted.
pub fn console(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let parts = split(&text);
    assert!(!parts.is_empty() && parts.len() <= text.matches(';').count() + 1);
    let range = text.as_bytes().as_ptr_range();
    for part in &parts {
        let own = part.as_bytes().as_ptr_range();
        assert!(part.is_empty() || (range.start <= own.start && own.end <= range.end));
        // What was one command stays one, and means the same with a semicolon behind it.
        assert_eq!(split(part), [*part]);
        match parse(part) {
            Ok(command) => {
                let ended = format!("{part}\n;");
                assert!(part.contains(['"', '\'', '*']) || parse(&ended).is_ok_and(|again| again == command));
            }
            Err(refused) => assert!(!refused.message.is_empty() && !refused.hint.is_empty()),
        }
    }
    if let Some(formats) = result_formats(data) {
        assert!(2 * formats.len() <= data.len());
        assert!(formats.iter().all(|format| matches!(format, Format::Text | Format::Binary)));
    }
}
