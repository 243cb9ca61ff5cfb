// Saving the moment as a picture, and sharing it by its link.

/** @param {Blob} svg @returns {Promise<Blob>} */
export async function asPng(svg) {
  const url = URL.createObjectURL(svg);
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.naturalWidth * 2, image.naturalHeight * 2];
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("no picture")))));
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** @param {string} link @param {HTMLElement} caption */
export async function copied(link, caption) {
  await navigator.clipboard.writeText(link);
  caption.textContent = "The link is copied.";
}
