# The commands that CI runs, on a bare image:
#
#   docker build -t tff-adaptive . && docker run tff-adaptive
FROM python:3.13-slim
RUN apt-get update && apt-get install -y --no-install-recommends make
WORKDIR /tff-adaptive
COPY . .
RUN make .venv/.installed
CMD ["make", "demo"]
