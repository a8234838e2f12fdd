import react from '@vitejs/plugin-react';

export default {
  plugins: [react()],
  base: './',
  build: { target: 'esnext', sourcemap: false, chunkSizeWarningLimit: 20000 },
  define: { 'process.env': {} },
};
