// The search of the site is an index in one of its files, which a browser reads. It needs no server.
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

import MiniSearch from 'minisearch'

// checkSearch fails if a reader who searches for the title of a page does not find the page.
export async function checkSearch(site, base) {
  const chunks = join(site, 'assets/chunks')
  const file = readdirSync(chunks).find((name) => name.startsWith('@localSearchIndex'))
  if (!file) {
    throw new Error('the site has no index for its search')
  }
  const source = readFileSync(join(chunks, file), 'utf8')
  const { default: json } = await import(`data:text/javascript;base64,${Buffer.from(source).toString('base64')}`)
  const index = MiniSearch.loadJSON(json, { fields: ['title', 'titles', 'text'], storeFields: ['title', 'titles'] })
  const lost = []
  for (const page of readdirSync(site, { recursive: true }).filter((name) => name.endsWith('.html') && name !== '404.html')) {
    const [, id, heading] = readFileSync(join(site, page), 'utf8').match(/<h1 id="([^"]+)"[^>]*>(.*?) <a class="header-anchor"/s) ?? []
    const title = plain(heading ?? '')
    const here = `${base}${page.replace(/(^|\/)index\.html$/, '$1')}#${id}`
    if (!index.search(title, { combineWith: 'AND' }).some((found) => found.id === here)) {
      lost.push(`${here}: ${title}`)
    }
  }
  if (lost.length > 0) {
    throw new Error(`the search does not find these pages by their titles:\n${lost.join('\n')}`)
  }
}

const entities = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'" }

// plain is the text of a heading.
const plain = (html) => html.replace(/<[^>]+>/g, '').replace(/&(amp|lt|gt|quot|#39);/g, (entity) => entities[entity])
