//! What a process has used, as `/proc` reports it (`proc_pid_stat(5)`, `proc_pid_status(5)`).

use std::{fs, io, ops::Sub};

use serde::Serialize;

use super::latency::rounded;

/// How many ticks of `/proc/PID/stat` make a second: `USER_HZ`, which is 100 on every
/// architecture this program is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// Seconds in the program's own code.
    pub user_seconds: f64,
    /// Seconds in the kernel on its behalf.
    pub system_seconds: f64,
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user_seconds: rounded(self.user_seconds - earlier.user_seconds),
            system_seconds: rounded(self.system_seconds - earlier.system_seconds),
        }
    }
}

/// Memory in use, in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// All of it that is resident (`VmRSS`).
    pub rss_kib: u64,
    /// What of it belongs to no file (`RssAnon`).
    pub anonymous_kib: u64,
    /// The most that was resident so far (`VmHWM`).
    #[serde(skip)]
    pub peak_kib: u64,
}

/// The processor time of a process so far.
///
/// # Errors
/// When there is no such process.
pub fn cpu(pid: u32) -> io::Result<Cpu> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat"))?).ok_or_else(unreadable)
}

/// The memory of a process now.
///
/// # Errors
/// When there is no such process.
pub fn memory(pid: u32) -> io::Result<Memory> {
    parse_status(&fs::read_to_string(format!("/proc/{pid}/status"))?).ok_or_else(unreadable)
}

fn unreadable() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not in the kernel's format")
}

/// Fields 14 and 15; what comes before may hold anything, for it holds the program's name.
fn parse_stat(text: &str) -> Option<Cpu> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut seconds = || Some(f64::from(fields.next()?.parse::<u32>().ok()?) / TICKS_PER_SECOND);
    Some(Cpu { user_seconds: seconds()?, system_seconds: seconds()? })
}

fn parse_status(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.trim().parse().ok()
    };
    Some(Memory {
        rss_kib: field("VmRSS")?,
        anonymous_kib: field("RssAnon")?,
        peak_kib: field("VmHWM")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let rest = "S 1 1 1 0 -1 4194560 900 0 0 0 123 45 0 0 20 0 3 0 100 1000 200";
        for name in ["(csi)", "(a b) c)", "()"] {
            let cpu = parse_stat(&format!("7 {name} {rest}"));
            assert_eq!(cpu, Some(Cpu { user_seconds: 1.23, system_seconds: 0.45 }), "{name}");
        }
        for text in ["", "7 (csi) S 1", "7 csi S 1 1 1 0 -1 0 0 0 0 0 123 45"] {
            assert_eq!(parse_stat(text), None, "{text:?}");
        }
    }

    #[test]
    fn memory_is_found_by_name_whatever_stands_around_it() {
        let status = "Name:\tcsi\nVmHWM:\t   30000 kB\nVmRSS:\t   20000 kB\nRssAnon:\t    9000 kB\nThreads:\t2\n";
        let memory = Memory { rss_kib: 20_000, anonymous_kib: 9_000, peak_kib: 30_000 };
        assert_eq!(parse_status(status), Some(memory));
        // A process that has ended and was not waited for has no memory.
        assert_eq!(parse_status("Name:\tcsi\nState:\tZ (zombie)\n"), None);
        assert_eq!(parse_status(&status.replace("kB", "MB")), None);
    }

    #[test]
    fn the_difference_of_two_readings_is_what_was_used_between() {
        let reading = |user_seconds, system_seconds| Cpu { user_seconds, system_seconds };
        assert_eq!(reading(1.3, 0.5) - reading(1.1, 0.2), reading(0.2, 0.3));
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        let Memory { rss_kib, peak_kib, .. } = memory(pid).unwrap();
        assert!(rss_kib > 0 && peak_kib >= rss_kib);
        assert!(cpu(pid).unwrap().user_seconds >= 0.0);
        assert!(cpu(u32::MAX).is_err());
    }
}
