// Links of the pages are relative paths, so that they work on GitHub. This file makes them work on the site too.
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { basename, dirname, join, posix, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

export const repository = 'https://github.com/etcd-druid/druid'

const root = fileURLToPath(new URL('../..', import.meta.url))
const docs = join(root, 'docs')

// githubSlug is the ID that GitHub gives to a heading, so that a link to it has one form for both. Runbook links and the
// plugin use this form too.
export function githubSlug(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '')
    .replaceAll(' ', '-')
}

// linkToRepository is a plugin of markdown-it. A link to a file that is not a page of the site becomes a link to the file on
// GitHub. The build fails if the repository does not have the file.
export function linkToRepository(md) {
  md.core.ruler.push('link_to_repository', ({ tokens, env }) => {
    for (const token of tokens.flatMap((t) => t.children ?? [])) {
      if (token.type === 'link_open') {
        token.attrSet('href', target(token.attrGet('href'), env.realPath ?? env.path))
      }
    }
  })
}

// target is where a link of the page at the path leads on the site.
function target(href, page) {
  if (/^([a-z]+:|#|\/)/i.test(href)) {
    return href
  }
  const [path, heading] = href.split('#')
  const file = resolve(dirname(page), decodeURI(path))
  if (!existsSync(file)) {
    throw new Error(`${relative(root, page)} links to ${href}, and ${relative(root, file)} does not exist: correct the link`)
  }
  const hash = heading ? `#${heading}` : ''
  if (file.startsWith(docs) && file.endsWith('.md')) {
    // The site serves README.md as the index of its folder.
    return basename(file) === 'README.md' ? posix.join(dirname(path), 'index.md') + hash : href
  }
  const kind = statSync(file).isDirectory() ? 'tree' : 'blob'
  return `${repository}/${kind}/main/${relative(root, file)}${hash}`
}

// checkAnchors fails if a link of the built site leads to a heading that its page does not have.
export function checkAnchors(site, base) {
  const text = new Map()
  for (const file of readdirSync(site, { recursive: true }).filter((name) => name.endsWith('.html'))) {
    text.set(file, readFileSync(join(site, file), 'utf8'))
  }
  const dead = []
  for (const [file, html] of text) {
    const here = new URL(`http://site${base}${file}`)
    for (const [, href] of html.matchAll(/ href="([^"]*#[^"]+)"/g)) {
      const to = new URL(href, here)
      if (to.host !== here.host) {
        continue
      }
      const page = decodeURI(to.pathname.slice(base.length)).replace(/(^|\/)$/, '$1index.html')
      if (!text.get(page)?.includes(` id="${decodeURIComponent(to.hash.slice(1))}"`)) {
        dead.push(`${file} links to ${href}`)
      }
    }
  }
  if (dead.length > 0) {
    throw new Error(`these links lead to headings that do not exist:\n${dead.join('\n')}`)
  }
}
