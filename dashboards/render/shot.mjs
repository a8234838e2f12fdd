// node shot.mjs DASHBOARD.json PROMETHEUS OUT.png ['var-cluster=a&from=MS&to=MS&scrape=15&theme=light']
//
// Takes the picture, prints each panel without points or with an error and its queries,
// and what is marked, and exits with 1 when there is one that `--allow-empty` does not excuse.
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { chromium } from 'playwright-core';

const [file, prometheus, picture, query = ''] = process.argv.slice(2).filter((one) => !one.startsWith('--'));
const lenient = process.argv.includes('--allow-empty');
const root = path.join(import.meta.dirname, 'dist');
const library = path.join(import.meta.dirname, 'node_modules/@grafana/ui/dist/public');
const TYPES = { '.js': 'text/javascript', '.css': 'text/css', '.html': 'text/html', '.svg': 'image/svg+xml' };

async function answer(request, response) {
  const url = new URL(request.url, 'http://localhost');
  if (url.pathname === '/dashboard.json') {
    return response.end(fs.readFileSync(file));
  }
  if (url.pathname.startsWith('/prometheus/')) {
    const asked = await fetch(prometheus + url.pathname.slice('/prometheus'.length) + url.search);
    response.writeHead(asked.status, { 'content-type': 'application/json' });
    return response.end(await asked.text());
  }
  const ours = path.join(root, url.pathname === '/' ? 'index.html' : url.pathname);
  const found = [ours, path.join(library, url.pathname.replace(/^\/public(\/build)?/, ''))].find((one) => fs.existsSync(one));
  if (!found) {
    response.writeHead(404);
    return response.end();
  }
  response.setHeader('content-type', TYPES[path.extname(found)] ?? 'application/octet-stream');
  return response.end(fs.readFileSync(found));
}

const server = http.createServer(answer);
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});
const page = await browser.newPage({ viewport: { width: 1640, height: 900 } });
const failures = [];
page.on('pageerror', (error) => failures.push(error.message));
await page.goto(`http://127.0.0.1:${server.address().port}/?${query}`);
const drawn = () => window.report.errors.length || (window.report.expected !== null && window.report.panels.length >= window.report.expected);
await page.waitForFunction(drawn, null, { timeout: 60000 }).catch((error) => failures.push(String(error)));
await page.waitForTimeout(1000);
await page.screenshot({ path: picture, fullPage: true });
const report = await page.evaluate(() => window.report);
await browser.close();
server.close();

const broken = report.panels.filter(({ error }) => error);
const empty = report.panels.filter(({ type, points, error }) => type !== 'text' && !points && !error);
for (const { title, error, queries } of [...broken, ...empty]) {
  console.log(`${title}: ${error || 'no points'}`, ...queries.map((one) => `\n  ${one.query}`));
}
[...new Set((report.marks ?? []).map(({ text }) => text))].forEach((text) => console.log(`mark: ${text}`));
failures.push(...report.errors);
failures.forEach((failure) => console.log(failure));
process.exit(broken.length || failures.length || (empty.length && !lenient) ? 1 : 0);
