// The pages of ../docs, and ../README.md as the first one. Links to anything else lead to the repository.
import { cpSync, existsSync, readdirSync, rmSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const repository = 'https://github.com/idem-go/idem'
const root = fileURLToPath(new URL('../..', import.meta.url))

const groups = {
  'Begin': ['production', 'policies', 'stores', 'migrating'],
  'Requests': ['mounting', 'clients', 'tokens', 'problems', 'signing', 'rpc', 'agents'],
  'Not HTTP': ['messages', 'transactions', 'steps'],
  'Operate': ['operating', 'records', 'speed'],
  'Why trust it': ['invariants', 'track-record', 'decisions'],
}

const listed = Object.values(groups).flat().sort().join()
const pages = readdirSync(path.join(root, 'docs')).filter((f) => f.endsWith('.md')).map((f) => path.basename(f, '.md')).sort().join()
if (listed !== pages) throw new Error(`site/.vitepress/config.mjs lists\n${listed}\nand docs has\n${pages}`)

// The pages are copied: what they import is looked for above them.
const copies = path.join(root, 'site/pages')
rmSync(copies, { recursive: true, force: true })
for (const what of ['docs', 'benchmarks/charts']) cpSync(path.join(root, what), path.join(copies, what), { recursive: true })
cpSync(path.join(root, 'README.md'), path.join(copies, 'index.md'))

// A link is relative to the file in the repository.
function links(md) {
  md.core.ruler.push('repository', ({ tokens, env }) => {
    for (const token of tokens.flatMap((t) => t.children ?? [])) {
      const href = token.type === 'link_open' && token.attrGet('href')
      if (!href || /^([a-z]+:|#)/.test(href)) continue
      const [file, hash] = href.split('#')
      const to = path.relative(copies, path.resolve(path.dirname(env.realPath ?? env.path), file))
      if (!existsSync(path.join(root, to))) throw new Error(`${env.relativePath} links to ${href}, which is not there`)
      const page = to === 'README.md' ? '/' : /^docs\/[^/]*\.md$/.test(to) ? '/' + to.slice('docs/'.length) : undefined
      token.attrSet('href', (page ?? `${repository}/blob/main/${to}`) + (hash ? '#' + hash : ''))
    }
  })
}

export default defineConfig({
  title: 'idem',
  description: 'Go middleware that runs an operation once',
  base: process.env.SITE_BASE ?? '/idem/',
  srcDir: 'pages',
  rewrites: { 'docs/:page.md': ':page.md' },
  outDir: 'dist',
  cacheDir: 'node_modules/.vitepress',
  cleanUrls: true,
  markdown: { config: links },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    sidebar: Object.entries(groups).map(([text, names]) => ({ text, items: names.map((name) => ({ text: name, link: '/' + name })) })),
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: {
      pattern: ({ filePath }) => `https://github.com/idem-go/idem/edit/main/${filePath === 'index.md' ? 'README.md' : filePath}`,
    },
  },
})
