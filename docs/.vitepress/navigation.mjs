// The sidebar and the links at the top are those of docs/README.md, in its order. Decision records are those of their index.
import { readFileSync, readdirSync } from 'node:fs'
import { join, posix } from 'node:path'

// navigation reads the index of the folder docs. It fails if a page of the folder is in no index.
export function navigation(docs) {
  const groups = groupsOf(readFileSync(join(docs, 'README.md'), 'utf8'))
  const seen = new Set(['README.md'])
  const entries = (links, folder = '') =>
    links.map(([text, link]) => {
      const page = posix.join(folder, link)
      seen.add(page)
      if (posix.basename(page) !== 'README.md') {
        return { text, link: `/${page}` }
      }
      const listed = groupsOf(readFileSync(join(docs, page), 'utf8')).flatMap((group) => group.links)
      return { text, link: `/${served(page)}`, collapsed: true, items: entries(listed, posix.dirname(page)) }
    })
  const sidebar = groups.map(({ text, links, topics }) => ({
    text,
    items: [...entries(links), ...topics.map((topic) => ({ text: topic.text, collapsed: true, items: entries(topic.links) }))],
  }))

  const pages = readdirSync(docs, { recursive: true }).filter((name) => name.endsWith('.md') && !name.startsWith('.'))
  const missing = pages.filter((page) => !seen.has(page))
  if (missing.length > 0) {
    throw new Error(`docs/README.md does not list ${missing.join(', ')}: add each page to the index, which is the sidebar of the site`)
  }
  const first = ({ link, items }) => link ?? first(items[0])
  return {
    sidebar,
    nav: sidebar.map((group) => ({ text: group.text, link: first(group) })),
    index: Object.fromEntries(pages.filter((page) => page.endsWith('README.md')).map((page) => [page, served(page)])),
  }
}

// served is the page that the site shows for an index.
const served = (page) => page.replace(/README\.md$/, 'index.md')

// groupsOf returns the second-level headings of an index with their links. Links in a row of a table whose first cell is
// plain text are the links of that topic.
function groupsOf(index) {
  const groups = [{ text: '', links: [], topics: [] }]
  for (const line of index.split('\n')) {
    const heading = line.match(/^## (.+)$/)
    if (heading) {
      groups.push({ text: heading[1], links: [], topics: [] })
    }
    const links = [...line.matchAll(/\[([^\]]+)\]\(([^):#]+\.md)\)/g)].map(([, text, link]) => [text, link])
    const topic = line.match(/^\| ([A-Z][A-Za-z ]*) \|/)
    const group = groups.at(-1)
    if (topic && links.length > 0) {
      group.topics.push({ text: topic[1], links })
    } else {
      group.links.push(...links)
    }
  }
  return groups.filter((group) => group.links.length + group.topics.length > 0)
}
