// Unpack: turns the packed text of a recording (packing.py) back into typed columns.
// Times are whole nanoseconds in 64-bit floats, which hold them exactly.

const TYPES = { i8: Int8Array, i16: Int16Array, i32: Int32Array, f64: Float64Array };
const TERMS = ["token_states", "reserved", "internal", "external", "cached", "free"];

async function inflate(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// One table: an object of columns, read from `buffer` at `offset`; its size in bytes beside.
function readTable(specs, buffer, offset) {
  const columns = { length: specs[0][3] };
  const begin = offset;
  for (const [name, coding, type, length] of specs) {
    const size = length * TYPES[type].BYTES_PER_ELEMENT;
    const coded = new TYPES[type](buffer.slice(offset, offset + size));
    columns[name] = decode(coding, coded, columns.start);
    offset += size;
  }
  return [columns, offset - begin];
}

function decode(coding, coded, keys) {
  const values = coded instanceof Float64Array || coding === "delta"
    ? new Float64Array(coded.length) : new Int32Array(coded.length);
  if (coding === "plain") {
    values.set(coded);
  } else if (coding === "delta") {
    let last = 0;
    for (let i = 0; i < coded.length; i++) values[i] = last += coded[i];
  } else {
    const last = new Map();
    for (let i = 0; i < coded.length; i++) {
      values[i] = coded[i] + (last.get(keys[i]) || 0);
      last.set(keys[i], values[i]);
    }
  }
  return values;
}

async function unpack(packed) {
  const buffer = await inflate(packed.data);
  const run = { ...packed, data: null };
  let offset = 0;
  for (const name of ["events", "iterations", "phases", "entries"]) {
    if (!packed.tables[name]) continue;
    const [columns, size] = readTable(packed.tables[name], buffer, offset);
    run[name] = columns;
    offset += size;
  }
  run.hasForks = run.events.sequence.some((sequence) => sequence > 0);
  return run;
}

// The number of sorted values that are at most `value`.
function countUpTo(sorted, value, length = sorted.length) {
  let low = 0, high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
}
