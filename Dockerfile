# unskew in a container: docker build -t unskew . && docker run --rm -v "$PWD:/work" unskew --help
# To serve: docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD:/work:ro" unskew serve RUN --host 0.0.0.0 --token-file token
# See docs/how_to/install.md.

ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
# extras to install, as in pip install 'unskew[trees,text]'
ARG EXTRAS=trees,serve
RUN python -m venv /opt/unskew
ENV PATH=/opt/unskew/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# torch for the processor alone, a tenth of the size; in a layer of its own, which changes of the sources leave alone
RUN pip install 'torch>=2.6,<2.14' --index-url https://download.pytorch.org/whl/cpu
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install ".[${EXTRAS}]"

FROM python:${PYTHON}-slim
# LightGBM and XGBoost need libgomp
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 unskew \
    && mkdir /cache /work \
    && chown unskew /cache /work
COPY --from=build /opt/unskew /opt/unskew
ENV PATH=/opt/unskew/bin:$PATH UNSKEW_CACHE=/cache PYTHONUNBUFFERED=1
USER unskew
VOLUME /cache
WORKDIR /work
EXPOSE 8000
ENTRYPOINT ["unskew"]
CMD ["--help"]
