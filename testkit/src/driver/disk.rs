//! A driver that keeps its volumes on disk: a directory for each, with its data and a record of what it is. As the
//! CSI specification asks, calls can be repeated, an incompatible repetition is refused, and volumes outlive the
//! driver. Secrets are never written. It mounts nothing and enforces no size.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{
    Answer, Backend, Call, Description, Status,
    proto::{
        CapacityRange, CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest,
        DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, NodeGetInfoResponse, Volume,
    },
};

/// What a volume gets when the request asks for no size, in bytes.
const DEFAULT_CAPACITY: i64 = 1 << 30;

/// The longest volume name, in bytes (CSI specification, "Size Limits").
const LONGEST_NAME: usize = 128;

/// The longest id that can be a file name even with what is put before it.
const LONGEST_ID: usize = 240;

/// The file in a volume's directory that describes it.
const RECORD: &str = "volume.json";

/// How the driver is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it is called.
    pub name: String,
    /// Where the volumes are kept.
    pub root: PathBuf,
}

/// A driver with volumes on disk.
#[derive(Debug)]
pub struct DiskDriver {
    settings: Settings,
    description: Description,
    /// Held during every change, so that two calls never see half a volume.
    changes: Mutex<()>,
}

/// What is known of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The name it was created by.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its size in bytes.
    pub capacity_bytes: i64,
    /// The parameters it was created with.
    pub parameters: BTreeMap<String, String>,
}

impl DiskDriver {
    /// A driver on `settings.root`, which is made if it is not there. What a killed driver left
    /// half done is removed.
    pub fn open(settings: Settings) -> io::Result<Self> {
        fs::create_dir_all(&settings.root)?;
        for entry in fs::read_dir(&settings.root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let controller = ["CREATE_DELETE_VOLUME", "GET_CAPACITY"];
        let description = Description::new(&settings.name, &["CONTROLLER_SERVICE"], &controller);
        Ok(Self { settings, description, changes: Mutex::new(()) })
    }

    /// The same driver, which says that it can do this as well; whoever wraps it does it.
    #[must_use]
    pub fn able(mut self, plugin: &[&str], controller: &[&str]) -> Self {
        self.description.plugin.extend(plugin.iter().map(ToString::to_string));
        self.description.controller.extend(controller.iter().map(ToString::to_string));
        self
    }

    /// All volumes, by id.
    pub fn volumes(&self) -> io::Result<Vec<Record>> {
        let mut volumes = Vec::new();
        for entry in fs::read_dir(&self.settings.root)? {
            volumes.extend(read(&entry?.path())?);
        }
        volumes.sort_by(|a: &Record, b| a.id.cmp(&b.id));
        Ok(volumes)
    }

    fn create(&self, request: &CreateVolumeRequest) -> Result<Record, Status> {
        check(request)?;
        let _alone = self.changes.lock();
        let id = volume_id(&request.name);
        let home = self.settings.root.join(&id);
        if let Some(known) = read(&home).map_err(broken)? {
            return compatible(&known, request).map(|()| known);
        }
        let capacity_bytes = capacity(request.capacity_range.unwrap_or_default())?;
        if capacity_bytes > self.available().map_err(broken)? {
            return Err(Status::resource_exhausted("not enough space left for the volume"));
        }
        let (name, parameters) = (request.name.clone(), request.parameters.clone());
        let record = Record { name, id, capacity_bytes, parameters };
        self.write(&record, &home).map_err(broken)?;
        Ok(record)
    }

    /// Makes the volume's directory, all or nothing.
    fn write(&self, record: &Record, home: &Path) -> io::Result<()> {
        let draft = self.settings.root.join(format!(".new-{}", record.id));
        fs::create_dir_all(draft.join("data"))?;
        let mut file = fs::File::create(draft.join(RECORD))?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        file.sync_all()?;
        fs::rename(draft, home)
    }

    fn delete(&self, id: &str) -> Result<(), Status> {
        if id.is_empty() {
            return Err(Status::invalid_argument("the volume id is missing"));
        }
        if !is_volume_id(id) {
            // We never gave out such an id, so there is no such volume: that is success.
            return Ok(());
        }
        let _alone = self.changes.lock();
        let gone = self.settings.root.join(format!(".gone-{id}"));
        match fs::rename(self.settings.root.join(id), &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(broken(error)),
            Ok(()) => fs::remove_dir_all(gone).map_err(broken),
        }
    }

    /// Bytes that can still be given out: what the file system has free.
    fn available(&self) -> io::Result<i64> {
        let system = rustix::fs::statvfs(&self.settings.root)?;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        Ok(i64::try_from(free).unwrap_or(i64::MAX))
    }
}

/// What a driver answers when its disk fails it.
#[allow(clippy::needless_pass_by_value)] // it is given to `map_err`
fn broken(error: io::Error) -> Status {
    Status::internal(format!("the driver's directory cannot be used: {error}"))
}

fn read(home: &Path) -> io::Result<Option<Record>> {
    match fs::read(home.join(RECORD)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What every `CreateVolume` must have, and what this driver cannot do.
fn check(request: &CreateVolumeRequest) -> Result<(), Status> {
    let wrong = if request.name.is_empty() {
        "the volume name is missing"
    } else if request.name.len() > LONGEST_NAME {
        "the volume name has more than 128 bytes"
    } else if volume_id(&request.name).len() > LONGEST_ID {
        "the volume name has too many characters that a file name cannot have"
    } else if request.volume_capabilities.is_empty() {
        "the volume capabilities are missing"
    } else if request.volume_content_source.is_some() {
        "volumes of this driver begin empty: content sources are not supported"
    } else {
        return Ok(());
    };
    Err(Status::invalid_argument(wrong))
}

/// The size of a new volume.
fn capacity(range: CapacityRange) -> Result<i64, Status> {
    let CapacityRange { required_bytes: required, limit_bytes: limit } = range;
    if required < 0 || limit < 0 || limit > 0 && limit < required {
        return Err(Status::out_of_range("no size is within the asked range"));
    }
    Ok(match (required, limit) {
        (0, 0) => DEFAULT_CAPACITY,
        (0, limit) => DEFAULT_CAPACITY.min(limit),
        (required, _) => required,
    })
}

/// Whether a known volume is what a repeated request asks for (CSI specification,
/// `CreateVolume`: otherwise `ALREADY_EXISTS`).
fn compatible(known: &Record, request: &CreateVolumeRequest) -> Result<(), Status> {
    let range = request.capacity_range.unwrap_or_default();
    let fits = known.capacity_bytes >= range.required_bytes
        && (range.limit_bytes == 0 || known.capacity_bytes <= range.limit_bytes);
    if fits && known.parameters == request.parameters {
        return Ok(());
    }
    Err(Status::already_exists(format!(
        "volume {:?} exists with another size or other parameters",
        known.name
    )))
}

/// A volume's id: its name in letters that any file system takes.
fn volume_id(name: &str) -> String {
    let letters = name.bytes().map(|byte| match byte {
        b'-' | b'_' | b'.' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("+{byte:02x}"),
    });
    format!("vol-{}", letters.collect::<String>())
}

/// Whether an id can be one of ours; no other is ever made a path.
fn is_volume_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    id.starts_with("vol-") && id.bytes().all(plain)
}

impl Backend for DiskDriver {
    fn description(&self) -> Description {
        self.description.clone()
    }

    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let record = self.create(&call.request)?;
        let volume = Volume {
            capacity_bytes: record.capacity_bytes,
            volume_id: record.id,
            ..Volume::default()
        };
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        self.delete(&call.request.volume_id)?;
        Ok(DeleteVolumeResponse {})
    }

    async fn get_capacity(&self, _call: Call<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        let available_capacity = self.available().map_err(broken)?;
        Ok(GetCapacityResponse { available_capacity, ..GetCapacityResponse::default() })
    }

    async fn node_get_info(&self) -> Answer<NodeGetInfoResponse> {
        Ok(NodeGetInfoResponse { node_id: "node".to_owned(), ..NodeGetInfoResponse::default() })
    }
}
