/* A field above each long table: it shows the rows that have all of its words. Those of text are stacked on telephones,
   where each cell needs its heading; those of numbers are narrow. */
const FEWEST = 20

for (const table of document.querySelectorAll("table")) {
  const rows = [...table.querySelectorAll("tbody tr")]
  if (rows.length < FEWEST) continue
  const field = document.createElement("input")
  field.type = "search"
  field.className = "filter"
  field.placeholder = `Search ${rows.length} rows`
  field.setAttribute("aria-label", field.placeholder)
  const texts = rows.map((row) => row.textContent.toLowerCase())
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/)
    rows.forEach((row, index) => (row.hidden = !words.every((word) => texts[index].includes(word))))
  })
  table.before(field)
  if (table.querySelector("td[style*=align]")) continue
  table.dataset.stacked = ""
  const headings = [...table.querySelectorAll("thead th")].map((heading) => heading.textContent)
  for (const row of rows) [...row.cells].forEach((cell, index) => (cell.dataset.heading = headings[index]))
}
