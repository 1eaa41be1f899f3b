// The site of the documentation: `make docs`. The pages are those of docs/, as GitHub shows them.
import { fileURLToPath } from 'node:url'

import { defineConfig } from 'vitepress'

import { checkAnchors, githubSlug, linkToRepository, repository } from './links.mjs'
import { navigation } from './navigation.mjs'
import { checkSearch } from './search.mjs'

const { nav, sidebar, index } = navigation(fileURLToPath(new URL('..', import.meta.url)))

// The packages are in this folder, where neither Go nor a reader of docs/ meets them. Pages in the folder above import vue.
const packagesOfThisFolder = {
  name: 'packages-of-this-folder',
  enforce: 'pre',
  resolveId(source, importer, options) {
    if (/^vue(\/|$)/.test(source) && importer?.endsWith('.md')) {
      return this.resolve(source, fileURLToPath(import.meta.url), { ...options, skipSelf: true })
    }
  },
}

export default defineConfig({
  title: 'druid',
  description: 'druid runs etcd clusters on Kubernetes.',
  // For a site that is not at the root of its host: make docs BASE=/druid/
  base: process.env.DOCS_BASE || '/',
  outDir: '../dist/docs',
  cacheDir: '.vitepress/node_modules/.vitepress',
  rewrites: index,
  // Links to pages that do not exist fail the build, and so do links to headings and files that do not exist: see links.mjs.
  ignoreDeadLinks: false,
  buildEnd: async ({ outDir, site }) => {
    checkAnchors(outDir, site.base)
    await checkSearch(outDir, site.base) // for each page: see search.mjs
  },
  markdown: {
    anchor: { slugify: githubSlug },
    config: linkToRepository,
  },
  vite: {
    plugins: [packagesOfThisFolder],
    // The index of the search is one file, which a browser loads when its user searches. Above 4 MB the build warns.
    build: { chunkSizeWarningLimit: 4000 },
  },
  themeConfig: {
    nav,
    sidebar,
    outline: { level: [2, 3] },
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: repository }],
  },
})
