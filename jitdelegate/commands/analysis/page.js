for (const field of document.querySelectorAll("input[data-table]")) {
  const rows = document.getElementById(field.dataset.table).tBodies[0].rows;
  field.hidden = false;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}
