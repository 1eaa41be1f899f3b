// Draws one row of the dashboard with Grafana's own components, for the images of the documentation: see `make dashboards`.
// The page index.html#0 has the first row, index.html#1 the second.
import '@fontsource-variable/inter'
import 'uplot/dist/uPlot.min.css'
import { createRoot } from 'react-dom/client'
import {
  applyFieldOverrides, cacheFieldDisplayNames, createTheme, dateTime, formattedValueToString, getFieldDisplayValues, standardFieldConfigEditorRegistry,
  standardTransformers, standardTransformersRegistry, ThemeContext, toDataFrame, transformDataFrame,
} from '@grafana/data'
import { BigValue, GlobalStyles, GraphNG, PanelChrome, TimeSeries, UPlotConfigBuilder } from '@grafana/ui'
import { TableNG } from '@grafana/ui/unstable'
import board from '../../manifests/monitoring/dashboard.json'
import answers from '../../dist/.dashboards/frames.json'

// The grid of Grafana has 24 columns. A line has 30 pixels, and the gap has 8.
const width = 1400, gap = 8, line = 30
const column = (width - gap) / 24 - gap
const theme = createTheme({ colors: { mode: 'light' }, typography: { fontFamily: '"Inter Variable"' } })
const timeZone = 'utc'
const timeRange = { from: dateTime(answers.from), to: dateTime(answers.to), raw: { from: 'now-1h', to: 'now' } }
const replaceVariables = (text) => Object.entries(answers.variables).reduce((s, [name, value]) => s.replaceAll(name, value), text)

const { organizeFieldsTransformer: organize } = standardTransformers
standardTransformersRegistry.setInit(() => [{ id: organize.id, name: organize.name, transformation: async () => organize }])
// The editor of Grafana registers these properties. Only their names matter here.
standardFieldConfigEditorRegistry.setInit(() => ['unit', 'decimals', 'min', 'mappings', 'color'].map((id) => (
  { id, path: id, name: id, process: (value) => value, shouldApply: () => true })))

// What Grafana's panels use if the dashboard does not choose.
const colors = { 'timeseries': 'palette-classic', 'state-timeline': 'continuous-GrYlRd' }
const lines = { drawStyle: 'line', lineWidth: 1, fillOpacity: 0, showPoints: 'never', axisPlacement: 'auto', spanNulls: false }

const drawings = {
  'timeseries': (panel, frames, w, h) => <TimeSeries frames={frames} timeRange={timeRange} timeZone={timeZone} width={w} height={h}
    legend={{ ...panel.options.legend, calcs: [] }} />,

  'stat': (panel, frames, w, h) => getFieldDisplayValues({
    data: frames, reduceOptions: panel.options.reduceOptions, fieldConfig: panel.fieldConfig, replaceVariables, theme, timeZone, sparkline: true,
  }).map((value) => <BigValue key={value.name} theme={theme} width={w} height={h} value={value.display} textMode="auto"
    colorMode={panel.options.colorMode} graphMode={panel.options.graphMode} sparkline={{ ...value.sparkline, timeRange }} />),

  'table': (panel, frames, w, h) => <TableNG data={frames[0]} width={w} height={h} sortBy={panel.options.sortBy} timeRange={timeRange} />,

  // Grafana's packages have no state timeline, so this draws its rectangles on the axes of Grafana.
  'state-timeline': (panel, frames, w, h) => <GraphNG frames={frames} timeRange={timeRange} timeZone={timeZone} width={w} height={h} theme={theme}
    legend={{ showLegend: false }} renderLegend={() => null} prepConfig={(aligned) => {
      const builder = new UPlotConfigBuilder(timeZone)
      const rows = aligned.fields.slice(1)
      builder.addScale({ scaleKey: 'x', isTime: true, orientation: 0, direction: 1, range: () => [answers.from, answers.to] })
      builder.addScale({ scaleKey: 'y', isTime: false, orientation: 1, direction: 1, range: () => [0, rows.length] })
      builder.addAxis({ scaleKey: 'x', isTime: true, placement: 'bottom', timeZone, theme, grid: { show: false } })
      builder.addAxis({
        scaleKey: 'y', placement: 'left', theme, grid: { show: false }, ticks: { show: false }, splits: () => rows.map((_, i) => rows.length - i - 0.5),
        values: () => rows.map((row) => row.config.displayNameFromDS),
      })
      rows.forEach((row) => builder.addSeries({ scaleKey: 'y', theme, pathBuilder: () => null, pointsBuilder: () => null, show: true }))
      builder.setPrepData(([frame]) => frame.fields.map((field) => field.values))
      builder.addHook('draw', (u) => rows.forEach((row, i) => {
        const times = aligned.fields[0].values
        const y = u.valToPos(rows.length - i - 0.1, 'y', true), height = u.valToPos(rows.length - i - 0.9, 'y', true) - y
        for (let from = 0, to; from < times.length; from = to) {
          for (to = from + 1; to < times.length && row.values[to] === row.values[from];) to++
          if (row.values[from] == null) continue
          const { text, color } = row.display(row.values[from])
          const left = u.valToPos(times[from], 'x', true), right = u.valToPos(times[Math.min(to, times.length - 1)], 'x', true)
          u.ctx.fillStyle = color
          u.ctx.fillRect(left, y, right - left, height)
          u.ctx.fillStyle = theme.colors.getContrastText(color)
          u.ctx.font = `${12 * devicePixelRatio}px ${theme.typography.fontFamily}`
          u.ctx.textBaseline = 'middle'
          u.ctx.textAlign = 'left'
          if (u.ctx.measureText(text).width < right - left) u.ctx.fillText(text, left + 6, y + height / 2)
        }
      }))
      return builder
    }} />,
}

async function framesOf(panel) {
  const result = await new Promise((resolve) => {
    transformDataFrame(panel.transformations ?? [], (answers.frames[panel.id] ?? []).map(toDataFrame)).subscribe(resolve)
  })
  const { defaults, overrides } = panel.fieldConfig
  const fieldConfig = { defaults: { color: { mode: colors[panel.type] ?? 'thresholds' }, ...defaults }, overrides }
  const shown = applyFieldOverrides({ data: result, fieldConfig, replaceVariables, theme, timeZone })
  cacheFieldDisplayNames(shown)
  if (panel.type === 'timeseries') shown.forEach((frame) => frame.fields.forEach((field) => { field.config.custom = lines }))
  return shown
}

const begins = board.panels.flatMap((panel, i) => panel.type === 'row' ? [i] : [])
const number = Number(location.hash.slice(1))
const [row, ...panels] = board.panels.slice(begins[number], begins[number + 1])
const top = row.gridPos.y
const bottom = Math.max(...panels.map(({ gridPos }) => gridPos.y + gridPos.h)) - top

const Row = ({ frames }) => <ThemeContext.Provider value={theme}>
  <GlobalStyles />
  <div style={{ position: 'relative', width, height: bottom * (line + gap) + gap, background: theme.colors.background.canvas }}>
    <div style={{ padding: '10px 12px', fontSize: 16, fontWeight: 500 }}>▾ {replaceVariables(row.title)}</div>
    {panels.map((panel, i) => {
      const { x, y, w, h } = panel.gridPos
      const size = { width: w * (column + gap) - gap, height: h * (line + gap) - gap }
      return <div key={panel.id} style={{ position: 'absolute', left: gap + x * (column + gap), top: (y - top) * (line + gap), ...size }}>
        <PanelChrome title={replaceVariables(panel.title)} {...size}>{(w, h) => drawings[panel.type](panel, frames[i], w, h)}</PanelChrome>
      </div>
    })}
  </div>
</ThemeContext.Provider>

document.fonts.load('14px "Inter Variable"').then(() => Promise.all(panels.map(framesOf))).then((frames) => {
  createRoot(document.getElementById('row')).render(<Row frames={frames} />)
  setTimeout(() => { document.body.dataset.digest = answers.digest }, 2000) // the components measure and draw within some frames
})
