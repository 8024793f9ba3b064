//! Numbers as few bytes as they need, and a checksum: what messages are made of. Pure; what is not a whole
//! number is None, never a panic.

/// Appends a number: seven bits a byte, the lowest first, and the eighth bit says that more follow.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The next number, which is taken off the front.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The next number, if it is one of 32 bits.
pub fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    u32::try_from(take(bytes)?).ok()
}

/// FNV-1a: a message that was changed on its way is to be told from one that was not.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    let fold = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, fold).to_le_bytes()
}

/// The bytes with their checksum.
pub fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// The bytes without their checksum; None if it is not theirs.
pub fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (bytes, sum) = bytes.split_last_chunk::<4>()?;
    (checksum(bytes) == *sum).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers: Vec<u64>) {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|number| put(&mut bytes, *number));
            let sealed = seal(bytes);
            let mut rest = unseal(&sealed).expect("sealed");
            for number in numbers {
                prop_assert_eq!(take(&mut rest), Some(number));
            }
            prop_assert_eq!(take(&mut rest), None);
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while take(&mut rest).is_some() {}
            unseal(&bytes);
        }

        #[test]
        fn one_changed_byte_is_noticed(mut bytes: Vec<u8>, at: prop::sample::Index, by in 1_u8..) {
            bytes = seal(bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= by;
            prop_assert_eq!(unseal(&bytes), None);
        }
    }

    #[test]
    fn too_large_a_number_is_none() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(take(&mut bytes), None);
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0x1f];
        assert_eq!(take_u32(&mut bytes), None);
    }
}
