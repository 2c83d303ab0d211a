//! Zincati's id of a machine.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Zincati's application id, `de35106b-6ec2-4688-b63a-fddaa156679b`.
const ZINCATI_APP_ID: [u8; 16] = [
    0xde, 0x35, 0x10, 0x6b, 0x6e, 0xc2, 0x46, 0x88, 0xb6, 0x3a, 0xfd, 0xda, 0xa1, 0x56, 0x67, 0x9b,
];

/// Why a text is no machine id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MachineIdError {
    /// `uninitialized`, or nothing: the host has not finished its first boot.
    #[error("the machine id is not set yet")]
    Unset,
    /// Anything but 32 hex digits.
    #[error("expected 32 hex digits")]
    NotHex,
    /// All zeros, as some images carry it: every machine would ask under one id.
    #[error("expected a machine's own id, found zeros only")]
    Zero,
}

/// The app-specific machine id that Zincati asks with, from the text of `/etc/machine-id`.
///
/// HMAC-SHA256, keyed with the machine id, over Zincati's application id; the first 16 bytes marked
/// as a version 4 UUID: what `systemd-id128 machine-id -a de35106b6ec24688b63afddaa156679b` prints.
/// Slot servers that map ids to Nodes compute the same.
///
/// # Errors
/// The text is no machine id.
pub fn zincati_id(machine_id: &str) -> Result<String, MachineIdError> {
    let key = parse_machine_id(machine_id)?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|_| MachineIdError::NotHex)?;
    mac.update(&ZINCATI_APP_ID);
    let digest = mac.finalize().into_bytes();
    let mut id: Vec<u8> = digest.iter().copied().take(16).collect();
    if let Some(byte) = id.get_mut(6) {
        *byte = (*byte & 0x0f) | 0x40;
    }
    if let Some(byte) = id.get_mut(8) {
        *byte = (*byte & 0x3f) | 0x80;
    }
    Ok(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn parse_machine_id(text: &str) -> Result<Vec<u8>, MachineIdError> {
    let text = text.trim();
    if text.is_empty() || text == "uninitialized" {
        return Err(MachineIdError::Unset);
    }
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let digits = digits.filter(|d| d.len() == 32).ok_or(MachineIdError::NotHex)?;
    if digits.iter().all(|d| *d == 0) {
        return Err(MachineIdError::Zero);
    }
    Ok(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_zincatis() {
        let cases = [
            ("1c09ca98649c4c7abc779cd04c96812e", "978a225b3d7b40e9acd7ce9b62f68444"),
            ("2e074e9b299c41a59923c51ae16f279b\n", "074c268827d74fb59ed758e8940cd667"),
            ("2E074E9B299C41A59923C51AE16F279B", "074c268827d74fb59ed758e8940cd667"),
        ];
        for (machine, expected) in cases {
            assert_eq!(zincati_id(machine).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_is_no_machine_id_is_refused() {
        let cases = [
            ("", MachineIdError::Unset),
            ("uninitialized\n", MachineIdError::Unset),
            ("1c09ca98-649c-4c7a-bc77-9cd04c96812e", MachineIdError::NotHex),
            ("1c09ca98649c4c7abc779cd04c96812", MachineIdError::NotHex),
            ("1c09ca98649c4c7abc779cd04c96812g", MachineIdError::NotHex),
            ("00000000000000000000000000000000", MachineIdError::Zero),
        ];
        for (machine, expected) in cases {
            assert_eq!(zincati_id(machine), Err(expected), "{machine}");
        }
    }
}
